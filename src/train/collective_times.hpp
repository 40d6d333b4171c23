// What `bench collectives --json` has measured on this machine, for comm.algorithm: auto.
#pragma once
#include "comm/measured.hpp"
#include "comm/world.hpp"

#include <string>
#include <vector>

namespace quadrille {

// The rows of a file that `bench collectives --json` has written; those of other benches and algorithms are passed over.
// Error{refused}, naming the source, where it is no such file.
std::vector<MeasuredTime> parse_collective_times(const std::string& text, const std::string& source);

struct CollectiveTimes {
    std::string source;  // the file; empty: none
    std::vector<MeasuredTime> times;
};

// Of the file that the environment's QUADRILLE_COLLECTIVES names; else of $XDG_CACHE_HOME/quadrille/collectives.json, or
// ~/.cache/quadrille/collectives.json, where there is one. Rank 0 reads it, so that all ranks choose alike. Collective; SharedError.
CollectiveTimes measured_collective_times(const World&);

}  // namespace quadrille
