// What the input leaves to the machine: grid.order and comm.bucket_size, where they are `auto`. Settled before a program is compiled that runs, so
// that the resolved input says it, and feeding that back gives the same bits. Pure: a function of the input and of what is known of the machine.
#pragma once
#include "compile/compile.hpp"
#include "plan/pace.hpp"

#include <string>

namespace quadrille {

bool leaves_open(const Config&);
// What is open in the first, as it is in the second: for a change of an input whose own choices are made.
Config settled_like(Config open, const Config& settled);

struct Choice {
    std::string key, value, reason;
};

// The order in which axes vary from rank to rank: the one in which what a rank sends, by the compiled program's wire bytes, takes least time on these
// links; of those within 5 % the one that keeps most bytes near; else the usual one. Axes of extent 1 stand last.
Choice choose_order(Config&, const Compiled&, const Machine&);

// How many bytes of gradients travel together: of some sizes between the smallest unit and all of them the one with which the step is shortest by
// step_time, and of such as are nearly as good the usual one, else the one with the fewest moves. Only sizes count that fit in memory, and that take
// hardly more of it than the smallest does. It compiles each.
Choice choose_bucket_size(Config&, const Workspace&, const Machine&);

struct Choices {
    Config config;               // with nothing left open
    std::vector<Choice> made;
};
// What is open, as a run that went before, on the same grid, has chosen.
Choices chosen_before(const Config& open, const Config& before);
// Throws TypingError where the model does not fit the grid.
Choices choose(const Config&, const Workspace&, const Machine&);

std::string text(const Choice&);  // "grid.order auto: dp-tp-sp-pp, ..."

}  // namespace quadrille
