#include "comm/shared_window.hpp"

#include <sys/statvfs.h>

#include <cstring>
#include <limits>
#include <new>

#include "comm/world.hpp"

namespace quadrille {
namespace {

constexpr std::int64_t page = 4096;
constexpr std::size_t alignment = alignof(SharedCounters);

// The library gives parts on pages of their own, yet not always from a page's beginning; every process finds the same offset there.
std::byte* aligned(void* part) {
    const auto address = reinterpret_cast<std::uintptr_t>(part);
    return static_cast<std::byte*>(part) + (alignment - address % alignment) % alignment;
}

// Maps a part that somebody else has filled.
void touch(const std::byte* data, std::int64_t bytes) {
    for (std::int64_t at = 0; at < bytes; at += page) static_cast<void>(*static_cast<const volatile std::byte*>(data + at));
}

}  // namespace

SharedWindow::SharedWindow(MPI_Comm comm, int places, std::int64_t place_bytes) : place_bytes_(place_bytes) {
    const std::int64_t bytes = counters_bytes + places * place_bytes;
    require(places * static_cast<std::int64_t>(sizeof(SharedCounters)) <= counters_bytes, "a shared window has room for fewer counters");
    int members = 1, me = 0;
    mpi_check(MPI_Comm_size(comm, &members));
    mpi_check(MPI_Comm_rank(comm, &me));
    MPI_Info info = MPI_INFO_NULL;
    mpi_check(MPI_Info_create(&info));
    mpi_check(MPI_Info_set(info, "alloc_shared_noncontig", "true"));  // every part on pages of its own
    void* mine = nullptr;
    mpi_check(MPI_Win_allocate_shared(bytes + static_cast<std::int64_t>(alignment), 1, info, comm, &mine, &window_));
    mpi_check(MPI_Info_free(&info));
    std::byte* own = aligned(mine);
    std::memset(own, 0, static_cast<std::size_t>(bytes));
    for (int p = 0; p < places; ++p) new (own + p * static_cast<std::int64_t>(sizeof(SharedCounters))) SharedCounters;
    mpi_check(MPI_Barrier(comm));
    for (int m = 0; m < members; ++m) {
        MPI_Aint size = 0;
        int unit = 0;
        void* theirs = nullptr;
        mpi_check(MPI_Win_shared_query(window_, m, &size, &unit, &theirs));
        parts_.push_back(m == me ? own : aligned(theirs));
        touch(parts_.back(), bytes);
    }
}

void SharedWindow::free() {
    if (window_ != MPI_WIN_NULL) mpi_check(MPI_Win_free(&window_));
}

std::int64_t SharedWindow::room() {
    struct statvfs s {};
    if (statvfs("/dev/shm", &s) != 0) return std::numeric_limits<std::int64_t>::max();
    return static_cast<std::int64_t>(s.f_bavail) * static_cast<std::int64_t>(s.f_frsize);
}

SharedPlace SharedWindow::place(int index) const {
    SharedPlace place;
    place.bytes = place_bytes_;
    for (std::byte* part : parts_)
        place.parts.push_back({std::launder(reinterpret_cast<SharedCounters*>(part)) + index, part + counters_bytes + index * place_bytes_});
    return place;
}

}  // namespace quadrille
