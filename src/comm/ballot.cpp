#include "comm/ballot.hpp"

#include "comm/evidence.hpp"

namespace quadrille {

Ballot::Ballot(const World& world) : world_(world) {
    mpi_check(MPI_Comm_dup(world.comm(), &comm_));
    mpi_check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
}

Ballot::~Ballot() {
    if (request_ != MPI_REQUEST_NULL) MPI_Wait(&request_, MPI_STATUS_IGNORE);
    if (comm_ != MPI_COMM_NULL) MPI_Comm_free(&comm_);
}

void Ballot::begin(std::int64_t mine) {
    require(request_ == MPI_REQUEST_NULL, "a vote is under way");
    mine_ = mine;
    mpi_check(MPI_Iallreduce(&mine_, &largest_, 1, MPI_INT64_T, MPI_MAX, comm_, &request_));
}

std::int64_t Ballot::end() {
    require(request_ != MPI_REQUEST_NULL, "no vote is under way");
    const Evidence::Vote vote(world_.evidence());
    mpi_check(MPI_Wait(&request_, MPI_STATUS_IGNORE));
    return largest_;
}

}  // namespace quadrille
