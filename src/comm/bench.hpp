// How fast this machine moves data between ranks: the engine's collectives against the MPI library's own, interleaved call by
// call so that a disturbance meets both. Returns rows and prints nothing.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/engine.hpp"

namespace quadrille {

struct CollectiveRow {
    std::string name;       // all_reduce, reduce_scatter, all_gather, all_to_all, send
    std::string algorithm;  // ring; native: the MPI library's own
    int ranks = 1;
    std::int64_t bytes = 0;  // the whole buffer of one rank, fp32
    double seconds = 0;      // median over the repetitions of the slowest rank's time
    double rate = 0;         // bytes / seconds
    std::string unit;        // GB/s
};

// For every kind and every size, over all ranks; needs at least 2 of them. Sizes are rounded down to whole elements per rank.
// Collective; all ranks get the rows. `send` goes from even ranks to the next odd one and back: the time is half of the round
// trip.
std::vector<CollectiveRow> bench_collectives(World& world, Engine& engine, std::span<const std::int64_t> sizes,
                                             int repetitions = 9);

}  // namespace quadrille
