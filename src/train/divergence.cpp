#include "train/divergence.hpp"

#include <fmt/core.h>

#include <cmath>

namespace quadrille {

std::string not_finite(const StepResult& r) {
    const std::string what = std::isfinite(r.loss) ? fmt::format("gradient norm is {}", r.grad_norm) : fmt::format("loss is {}", r.loss);
    if (!r.updated) return fmt::format("the {}; the update is skipped", what);
    return fmt::format("the {}, but the gradient norm is {:.4g}; the update is made", what, r.grad_norm);
}

}  // namespace quadrille
