#include "comm/collectives.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "comm/evidence.hpp"

namespace quadrille {
namespace {

// Tells of a wait in the rank's evidence, where there is one.
class Told {
  public:
    explicit Told(Evidence* evidence) {
        if (evidence) vote_.emplace(*evidence);
    }

  private:
    std::optional<Evidence::Vote> vote_;
};

MPI_Datatype type_of(double) { return MPI_DOUBLE; }
MPI_Datatype type_of(std::int64_t) { return MPI_INT64_T; }

template <class T>
std::vector<T> gather_values(MPI_Comm comm, int rank, int size, std::span<const T> values) {
    require(values.size() <= std::numeric_limits<int>::max(), "gather is for small things");
    std::vector<T> all(rank == 0 ? values.size() * static_cast<std::size_t>(size) : 0);
    const auto n = static_cast<int>(values.size());
    mpi_check(MPI_Gather(values.data(), n, type_of(T{}), all.data(), n, type_of(T{}), 0, comm));
    return all;
}

void reduce_all(MPI_Comm comm, void* values, std::size_t count, MPI_Datatype type, MPI_Op op) {
    require(count <= std::numeric_limits<int>::max(), "max and sum are for small things");
    mpi_check(MPI_Allreduce(MPI_IN_PLACE, values, static_cast<int>(count), type, op, comm));
}

}  // namespace

void mpi_check(int rc, Location at) {
    if (rc == MPI_SUCCESS) [[likely]]
        return;
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    if (MPI_Error_string(rc, text.data(), &length) != MPI_SUCCESS) length = 0;
    throw Error(Exit::rank_failed,
                fmt::format("MPI error {} ({}) in {}, {}:{}", rc, std::string(text.data(), static_cast<std::size_t>(length)),
                            at.function_name(), at.file_name(), at.line()));
}

void Collectives::take(MPI_Comm of) {
    mpi_check(MPI_Comm_dup(of, &comm_));
    mpi_check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
    mpi_check(MPI_Comm_rank(comm_, &rank_));
    mpi_check(MPI_Comm_size(comm_, &size_));
}

void Collectives::release() {
    if (comm_ != MPI_COMM_NULL) MPI_Comm_free(&comm_);  // a destructor has nobody to report to
}

std::shared_ptr<const void> Collectives::waits() const { return std::make_shared<const Told>(evidence_); }

void Collectives::beat() const {
    if (evidence_) evidence_->beat();
    if (beats_) ++*beats_;
}

void Collectives::barrier() const {
    const Told told(evidence_);
    mpi_check(MPI_Barrier(comm_));
}

void Collectives::broadcast(std::span<double> values, int root) const {
    const Told told(evidence_);
    require(values.size() <= std::numeric_limits<int>::max(), "broadcast is for small things");
    mpi_check(MPI_Bcast(values.data(), static_cast<int>(values.size()), MPI_DOUBLE, root, comm_));
}

std::string Collectives::broadcast(const std::string& text) const {
    const Told told(evidence_);
    auto bytes = static_cast<std::int64_t>(text.size());
    mpi_check(MPI_Bcast(&bytes, 1, MPI_INT64_T, 0, comm_));
    std::string out = rank_ == 0 ? text : std::string(static_cast<std::size_t>(bytes), '\0');
    constexpr std::int64_t piece = 1 << 30;
    for (std::int64_t at = 0; at < bytes; at += piece)
        mpi_check(MPI_Bcast(out.data() + at, static_cast<int>(std::min(piece, bytes - at)), MPI_BYTE, 0, comm_));
    return out;
}

std::int64_t Collectives::min(std::int64_t x) const {
    const Told told(evidence_);
    std::int64_t out = 0;
    mpi_check(MPI_Allreduce(&x, &out, 1, MPI_INT64_T, MPI_MIN, comm_));
    return out;
}

std::int64_t Collectives::max(std::int64_t x) const {
    const Told told(evidence_);
    std::int64_t out = 0;
    mpi_check(MPI_Allreduce(&x, &out, 1, MPI_INT64_T, MPI_MAX, comm_));
    return out;
}

void Collectives::max(std::span<std::int64_t> values) const {
    const Told told(evidence_);
    reduce_all(comm_, values.data(), values.size(), MPI_INT64_T, MPI_MAX);
}

void Collectives::sum(std::span<std::uint64_t> values) const {
    const Told told(evidence_);
    reduce_all(comm_, values.data(), values.size(), MPI_UINT64_T, MPI_SUM);
}

std::vector<double> Collectives::gather(std::span<const double> values) const {
    const Told told(evidence_);
    return gather_values<double>(comm_, rank_, size_, values);
}

std::vector<std::int64_t> Collectives::gather(std::span<const std::int64_t> values) const {
    const Told told(evidence_);
    return gather_values<std::int64_t>(comm_, rank_, size_, values);
}

std::vector<std::string> Collectives::gather(const std::string& text, std::int64_t piece) const {
    constexpr int tag = 2;
    const Told told(evidence_);
    const auto bytes = static_cast<std::int64_t>(text.size());
    const std::vector<std::int64_t> lengths = gather_values<std::int64_t>(comm_, rank_, size_, {&bytes, 1});
    if (rank_ != 0) {
        for (std::int64_t at = 0; at < bytes; at += piece)
            mpi_check(MPI_Send(text.data() + at, static_cast<int>(std::min(piece, bytes - at)), MPI_BYTE, 0, tag, comm_));
        return {};
    }
    std::vector<std::string> all = {text};
    for (int r = 1; r < size_; ++r) {
        const std::int64_t length = lengths[static_cast<std::size_t>(r)];
        std::string& theirs = all.emplace_back(static_cast<std::size_t>(length), '\0');
        for (std::int64_t at = 0; at < length; at += piece)
            mpi_check(MPI_Recv(theirs.data() + at, static_cast<int>(std::min(piece, length - at)), MPI_BYTE, r, tag, comm_, MPI_STATUS_IGNORE));
    }
    return all;
}

}  // namespace quadrille
