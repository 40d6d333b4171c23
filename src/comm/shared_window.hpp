// What the members of a group share, who must all be on one node: a part of memory for each. A member writes to its own part alone; the others read
// there what its counters say is ready.
//
// Kept for the life of the group and touched at once, so that no move pays for first use. Counters only grow, over all moves of their
// place, so that nothing need be reset between two moves that members begin and end at different times.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/shared_memory.hpp"

namespace quadrille {

// What members pass on: terms of a sum to the owner of their slice, and slices from their owner to all.
enum class Flow { terms, slices };
constexpr std::size_t flows = 2;

// How many rounds of a flow a member has put in its part, and has taken from the others'. Each written by that member alone.
struct SharedCounters {
    struct alignas(64) Counter {
        std::atomic<std::uint64_t> value = 0;
    };
    std::array<Counter, flows> put, took;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "a lock would be this process's own");

// What one move at a time has of the window.
struct SharedPlace {
    struct Part {
        SharedCounters* counters = nullptr;
        std::byte* data = nullptr;
    };
    std::vector<Part> parts;                      // by member
    std::int64_t bytes = 0;                       // of each one's data
    std::array<std::uint64_t, flows> rounds = {};  // of the moves so far, the same on all members

    // Whether every member has taken all that was put in those rounds, so that this member's part may be written anew.
    bool drained() const;
};

class SharedWindow {
  public:
    // What the counters of all places take of a member's part, before the data.
    static constexpr std::int64_t counters_bytes = 4096;
    static std::int64_t part_bytes(int places, std::int64_t place_bytes) { return counters_bytes + places * place_bytes; }

    // Collective over comm, as its end is; both as SharedMemory's.
    SharedWindow(MPI_Comm comm, int places, std::int64_t place_bytes);

    int members() const { return memory_.members(); }
    SharedPlace place(int index) const;

  private:
    std::int64_t place_bytes_;
    SharedMemory memory_;
};

}  // namespace quadrille
