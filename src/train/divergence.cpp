#include "train/divergence.hpp"

#include <fmt/core.h>

#include <cmath>

namespace quadrille {

std::string not_finite(const StepResult& r, bool stale) {
    const std::string norm = stale ? "gradient norm of the step before" : "gradient norm";
    const std::string what = std::isfinite(r.loss) ? fmt::format("{} is {}", norm, r.grad_norm) : fmt::format("loss is {}", r.loss);
    if (!r.updated) return fmt::format("the {}; the update is skipped", what);
    return fmt::format("the {}, but the {} is {:.4g}; the update is made", what, norm, r.grad_norm);
}

}  // namespace quadrille
