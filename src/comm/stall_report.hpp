// What the evidence of all ranks says of a job that stands still: who has not entered which move, and what that rank does instead. Pure.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "comm/evidence.hpp"

namespace quadrille {

// One rank's evidence, as it travels. Trivially copyable.
struct RankEvidence {
    std::int32_t rank = -1;
    bool answers = false;  // the rank itself has sent it
    bool known = false;    // by itself or from its page: all below holds
    char state = '?';      // as process_state
    double taken = 0;      // seconds on its node's clock, as all times in the page
    std::array<char, 64> host{};
    EvidenceCopy page{};
};

// By the system: R runs, S sleeps, D is in I/O, T is stopped, Z has ended, 0 is not there; ? where the system does not tell.
char process_state(std::int64_t process);

// Whether it has waited in a move or a blocking collective for so long.
bool waits(const RankEvidence& rank, double seconds);

// For people, several lines without the last line's end. `ranks`: all of the job, in order. `still`: seconds without a beat.
std::string stall_report(std::span<const RankEvidence> ranks, double still, const DescribeLine& describe);

// "rank 3", "ranks 0-2 and 5": of ascending numbers.
std::string text_of_ranks(std::span<const int> ranks);

}  // namespace quadrille
