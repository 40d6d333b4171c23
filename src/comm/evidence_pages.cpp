#include "comm/evidence_pages.hpp"

#include <algorithm>
#include <new>

#include "comm/world.hpp"

namespace quadrille {

EvidencePages::EvidencePages(MPI_Comm world, MPI_Comm node) {
    int size = 1, rank = 0, ranks = 1;
    mpi_check(MPI_Comm_rank(world, &rank));
    mpi_check(MPI_Comm_size(world, &ranks));
    mpi_check(MPI_Comm_rank(node, &me_));
    mpi_check(MPI_Comm_size(node, &size));
    ranks_.resize(static_cast<std::size_t>(size));
    mpi_check(MPI_Allgather(&rank, 1, MPI_INT, ranks_.data(), 1, MPI_INT, node));
    nodes_.resize(static_cast<std::size_t>(ranks));
    mpi_check(MPI_Allgather(&ranks_[0], 1, MPI_INT, nodes_.data(), 1, MPI_INT, world));
    // With room to spare, since the library aligns each rank's part as it likes.
    constexpr auto align = std::uintptr_t{64};
    void* memory = nullptr;
    mpi_check(MPI_Win_allocate_shared(sizeof(EvidencePage) + align, 1, MPI_INFO_NULL, node, &memory, &window_));
    for (int r = 0; r < size; ++r) {
        MPI_Aint bytes = 0;
        int unit = 1;
        mpi_check(MPI_Win_shared_query(window_, r, &bytes, &unit, &memory));
        const auto address = (reinterpret_cast<std::uintptr_t>(memory) + align - 1) / align * align;
        // The rank's own page begins as zeros; the others' have been begun, or will be, by their ranks.
        pages_.push_back(r == me_ ? new (reinterpret_cast<void*>(address)) EvidencePage{} : reinterpret_cast<EvidencePage*>(address));
    }
    mpi_check(MPI_Barrier(node));
}

EvidencePages::~EvidencePages() { MPI_Win_free(&window_); }

const EvidencePage* EvidencePages::of(int world_rank) const {
    const auto at = std::find(ranks_.begin(), ranks_.end(), world_rank);
    return at == ranks_.end() ? nullptr : pages_[static_cast<std::size_t>(at - ranks_.begin())];
}

}  // namespace quadrille
