// Changes of the input that would make a run fit in device memory, each compiled before it is offered.
#pragma once
#include "plan/plan.hpp"

namespace quadrille {

// Fewer sequences per pass, finer shards of the training state, recompute, the residual stream cut over tp, another schedule, smaller elements, a
// finer cut of the model at the same number of ranks, other tiers of memory; where these are too few, combinations, of which nothing can be left
// out. The batch stays. At most four, those that change no number first,
// by their cost (step_cost, relative to `cost`, that of the input as it is).
std::vector<Suggestion> suggest(const Config&, const Workspace&, const Variation&, double cost);

}  // namespace quadrille
