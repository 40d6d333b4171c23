// Runs the pipeline's order with the costs of its actions: how long a step takes, and how much of it each coordinate idles.
#pragma once
#include "compile/schedule.hpp"

namespace quadrille {

// Seconds, or any unit, of the parts of one chunk for one microbatch. A backward that is not split takes input + weight.
struct ActionCosts { double forward = 1, backward_input = 1, backward_weight = 1; };

struct Timeline {
    double seconds = 0;             // from the first action to the end of the last, over all coordinates
    double bubble_fraction = 0;     // idle time ÷ step time, over all coordinates
};

// `costs` by chunk. An action starts when its coordinate is free and what it reads has been made by the chunk before (forward) or after
// (backward); messages take no time. Throws logic_error if the order cannot finish.
Timeline simulate(const std::vector<Order>&, const std::vector<ActionCosts>& costs);

}  // namespace quadrille
