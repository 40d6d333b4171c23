// A step that is not finite is told as what it was: skipped where nothing was updated, made where the gradients were finite.
#include "train/divergence.hpp"

#include <doctest.h>

#include <limits>

using namespace quadrille;

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

std::string told(double loss, double norm, bool updated, bool stale = false) {
    StepResult r;
    r.loss = loss;
    r.grad_norm = norm;
    r.updated = updated;
    return not_finite(r, stale);
}

}  // namespace

TEST_CASE("what happened is what the update did, whichever number is not finite") {
    CHECK(told(3.5, inf, false) == "the gradient norm is inf; the update is skipped");
    CHECK(told(inf, inf, false) == "the loss is inf; the update is skipped");
    CHECK(told(inf, 2.5, true) == "the loss is inf, but the gradient norm is 2.5; the update is made");
}

TEST_CASE("a stale update is of the step before") {
    CHECK(told(3.5, inf, false, true) == "the gradient norm of the step before is inf; the update is skipped");
    CHECK(told(inf, 2.5, true, true) == "the loss is inf, but the gradient norm of the step before is 2.5; the update is made");
}
