#include "comm/shared_window.hpp"

#include <unistd.h>

#include <new>

#include "comm/world.hpp"

namespace quadrille {
namespace {

// Maps a part that somebody else has filled.
void touch(const std::byte* data, std::int64_t bytes) {
    const std::int64_t page = sysconf(_SC_PAGESIZE);
    for (std::int64_t at = 0; at < bytes; at += page) static_cast<void>(*static_cast<const volatile std::byte*>(data + at));
}

}  // namespace

bool SharedPlace::drained() const {
    for (const Part& part : parts)
        for (std::size_t f = 0; f < flows; ++f)
            if (static_cast<std::int64_t>(part.counters->took[f].value.load(std::memory_order_acquire) - rounds[f]) < 0) return false;
    return true;
}

SharedWindow::SharedWindow(MPI_Comm comm, int places, std::int64_t place_bytes)
    : place_bytes_(place_bytes), memory_(comm, part_bytes(places, place_bytes)) {
    constexpr auto bytes = static_cast<std::int64_t>(sizeof(SharedCounters));
    static_assert(alignof(SharedCounters) <= SharedMemory::alignment);
    require(places * bytes <= counters_bytes, "a shared window has room for fewer counters");
    int me = 0;
    mpi_check(MPI_Comm_rank(comm, &me));
    for (int p = 0; p < places; ++p) new (memory_.part(me) + p * bytes) SharedCounters;
    mpi_check(MPI_Barrier(comm));
    for (int m = 0; m < members(); ++m) touch(memory_.part(m), part_bytes(places, place_bytes));
}

SharedPlace SharedWindow::place(int index) const {
    SharedPlace place;
    place.bytes = place_bytes_;
    for (int m = 0; m < members(); ++m) {
        std::byte* part = memory_.part(m);
        place.parts.push_back({std::launder(reinterpret_cast<SharedCounters*>(part)) + index, part + counters_bytes + index * place_bytes_});
    }
    return place;
}

}  // namespace quadrille
