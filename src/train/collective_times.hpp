// What `bench collectives --json` has measured on this machine, for comm.algorithm: auto.
#pragma once
#include "comm/measured.hpp"
#include "comm/world.hpp"

#include <string>
#include <vector>

namespace quadrille {

// The rows of a file that `bench collectives --json` has written on a machine of this name (empty: any); those of other benches and algorithms are
// passed over. Error{refused}, naming the source, where it is no such file, or of another machine.
std::vector<MeasuredTime> parse_collective_times(const std::string& text, const std::string& source, const std::string& machine);

struct CollectiveTimes {
    std::vector<MeasuredTime> times;  // none: the built-in rule decides
    std::string note, warning;        // on rank 0: where they are from; why such a file is not believed
};

// Of the file that the environment's QUADRILLE_COLLECTIVES names: SharedError{refused} if it is no such file; an empty name means none. Without
// the variable, of $XDG_CACHE_HOME/quadrille/collectives.json or ~/.cache/quadrille/collectives.json, where there is one: home directories are
// shared and benches interrupted, so what is damaged or was measured on another kind of machine is passed over with a warning. Rank 0 reads it,
// so that all ranks choose alike. Collective.
CollectiveTimes measured_collective_times(const World&);

}  // namespace quadrille
