#include "comm/evidence_pages.hpp"

#include <algorithm>
#include <new>

#include "comm/world.hpp"

namespace quadrille {

EvidencePages::EvidencePages(MPI_Comm world, MPI_Comm node) : memory_(node, sizeof(EvidencePage)) {
    static_assert(alignof(EvidencePage) <= SharedMemory::alignment);
    int rank = 0, ranks = 1;
    mpi_check(MPI_Comm_rank(world, &rank));
    mpi_check(MPI_Comm_size(world, &ranks));
    mpi_check(MPI_Comm_rank(node, &me_));
    ranks_.resize(static_cast<std::size_t>(memory_.members()));
    mpi_check(MPI_Allgather(&rank, 1, MPI_INT, ranks_.data(), 1, MPI_INT, node));
    nodes_.resize(static_cast<std::size_t>(ranks));
    mpi_check(MPI_Allgather(&ranks_[0], 1, MPI_INT, nodes_.data(), 1, MPI_INT, world));
    // The rank's own page begins as zeros; the others' have been begun, or will be, by their ranks.
    for (int r = 0; r < memory_.members(); ++r)
        pages_.push_back(r == me_ ? new (memory_.part(r)) EvidencePage{} : reinterpret_cast<EvidencePage*>(memory_.part(r)));
    mpi_check(MPI_Barrier(node));
}

const EvidencePage* EvidencePages::of(int world_rank) const {
    const auto at = std::find(ranks_.begin(), ranks_.end(), world_rank);
    return at == ranks_.end() ? nullptr : pages_[static_cast<std::size_t>(at - ranks_.begin())];
}

}  // namespace quadrille
