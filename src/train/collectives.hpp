// What carries a run's collectives, told once its groups are made: which of them got another algorithm than the input asks for, and why.
#pragma once
#include "comm/engine.hpp"
#include "config/config.hpp"
#include "ir/program.hpp"

#include <span>
#include <string>
#include <vector>

namespace quadrille {

struct CollectivesTold {
    std::vector<std::string> notes, warnings;  // on rank 0, one of either at most
    bool wire_estimated = false;               // some groups are carried by what counts no bytes of its own
};

// Of all groups of the programs that this rank runs, which the engine has made already. Collective over all ranks. SharedError{no_memory} where the
// input asks for shared memory by name and there is no room for it.
CollectivesTold tell_collectives(const World&, Engine&, std::span<const Program* const> programs, const Coordinate&, CollectiveAlgorithm asked);

// "over dp: ring, since ..."; empty where a group over these axes got what it was asked to have. Pure.
std::string sentence(const std::string& axes, const Service&);

}  // namespace quadrille
