// What a step whose numbers are not finite has done, in words.
#pragma once
#include "runtime/step.hpp"

#include <string>

namespace quadrille {

// "the gradient norm is inf; the update is skipped": of a step whose loss or norm is not finite. The program updates by the norm alone, so an
// infinite loss of finite gradients (a target whose logit is -inf) is a step that was made, and is told as one. `stale`: norm and update are
// those of the step before. Pure.
std::string not_finite(const StepResult&, bool stale);

}  // namespace quadrille
