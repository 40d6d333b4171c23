// How fast this machine moves data between ranks: the engine's collectives by each of its algorithms against the MPI library's own,
// interleaved call by call so that a disturbance meets all. Returns rows and prints nothing.
//
// The library takes memory for its sums by malloc, which gives large pieces back to the system and gets them anew for every call: ten
// times slower where pages are dear. It is measured with an allocator that keeps its pages, and once, as `native-untuned`, without.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/engine.hpp"

namespace quadrille {

struct CollectiveRow {
    std::string name;       // all_reduce, reduce_scatter, all_gather, all_to_all, send; copy: of that many bytes by all ranks at once
    std::string algorithm;  // ring; shared and auto (without a table), where ranks share memory and there is room; memcpy; the MPI library's own:
                            // native, native-untuned
    int ranks = 1;
    std::int64_t bytes = 0;  // the whole buffer of one rank, fp32
    double seconds = 0;      // median over the repetitions of the slowest rank's time
    double rate = 0;         // bytes / seconds
    std::string unit;        // GB/s
};

// For every kind and every size, over all ranks; needs at least 2 of them. Sizes are rounded down to whole elements per rank.
// Collective; all ranks get the rows. `send` goes from even ranks to the next odd one and back: the time is half of the round
// trip.
std::vector<CollectiveRow> bench_collectives(World& world, const EngineOptions& options, std::span<const std::int64_t> sizes,
                                             int repetitions = 9);

}  // namespace quadrille
