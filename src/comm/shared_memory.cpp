#include "comm/shared_memory.hpp"

#include "base/error.hpp"
#include "base/rounding.hpp"
#include "comm/world.hpp"

#include <sys/statvfs.h>
#include <unistd.h>

#include <cstring>
#include <limits>

namespace quadrille {
namespace {

// The library gives parts on pages of their own, yet not always from a page's beginning; every process finds the same offset there.
std::byte* aligned(void* part) {
    const auto address = reinterpret_cast<std::uintptr_t>(part);
    return static_cast<std::byte*>(part) + (SharedMemory::alignment - address % SharedMemory::alignment) % SharedMemory::alignment;
}

std::int64_t padded(std::int64_t bytes) { return bytes + static_cast<std::int64_t>(SharedMemory::alignment); }

}  // namespace

SharedMemory::SharedMemory(MPI_Comm comm, std::int64_t bytes) {
    int members = 1, me = 0;
    mpi_check(MPI_Comm_size(comm, &members));
    mpi_check(MPI_Comm_rank(comm, &me));
    MPI_Info info = MPI_INFO_NULL;
    mpi_check(MPI_Info_create(&info));
    mpi_check(MPI_Info_set(info, "alloc_shared_noncontig", "true"));  // every part on pages of its own
    void* mine = nullptr;
    try {
        mpi_check(MPI_Win_allocate_shared(padded(bytes), 1, info, comm, &mine, &window_));
    } catch (const Error& e) {
        throw Error(e.exit(), fmt::format("memory that the {} ranks of a node share, {} bytes each, cannot be had: is /dev/shm full, or not to be "
                                          "written? ({})", members, padded(bytes), e.what()));
    }
    mpi_check(MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN));
    mpi_check(MPI_Info_free(&info));
    for (int m = 0; m < members; ++m) {
        MPI_Aint size = 0;
        int unit = 0;
        void* part = nullptr;
        mpi_check(MPI_Win_shared_query(window_, m, &size, &unit, &part));
        parts_.push_back(aligned(m == me ? mine : part));
    }
    std::memset(part(me), 0, static_cast<std::size_t>(bytes));
}

SharedMemory::~SharedMemory() { MPI_Win_free(&window_); }

std::int64_t SharedMemory::taken(std::int64_t bytes) {
    const std::int64_t page = sysconf(_SC_PAGESIZE);
    return aligned_up(padded(bytes), page) + page;
}

std::int64_t SharedMemory::room() {
    struct statvfs s {};
    if (statvfs("/dev/shm", &s) != 0) return std::numeric_limits<std::int64_t>::max();
    return static_cast<std::int64_t>(s.f_bavail) * static_cast<std::int64_t>(s.f_frsize);
}

}  // namespace quadrille
