// Changes of the input that would make a run fit in device memory, each compiled before it is offered.
#pragma once
#include "plan/plan.hpp"

namespace quadrille {

// Tried from the cheapest: fewer sequences per pass, the residual stream cut over tp, smaller elements, a finer cut of the model at the
// same number of ranks, then combinations of those. At most four.
std::vector<Suggestion> suggest(const Config&, const Workspace&, const Variation&);

}  // namespace quadrille
