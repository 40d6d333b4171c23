// exp32 and what is made of it, against the C library in float64.
#include "kernels/reference.hpp"
#include <limits>

using namespace quadrille;

namespace {

// Error in units in the last place of the fp32 result.
double ulps(float got, double want) {
    const float near = std::abs(static_cast<float>(want));
    return std::abs(static_cast<double>(got) - want) / (std::nextafter(near, INFINITY) - static_cast<double>(near));
}

double gelu64(double x) { return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x))); }

}  // namespace

TEST_CASE("exp32 is within 1.1 ulp wherever the result is a normal number") {
    double worst = 0.0;
    for (float x = -87.3f; x < 88.72f; x += 0.00037f) worst = std::max(worst, ulps(exp32(x), std::exp(static_cast<double>(x))));
    for (float x = -0.01f; x < 0.01f; x += 1e-6f) worst = std::max(worst, ulps(exp32(x), std::exp(static_cast<double>(x))));
    MESSAGE("worst error of exp32: ", worst, " ulp");
    CHECK(worst < 1.1);
}

TEST_CASE("exp32 at the ends of its range") {
    const float inf = std::numeric_limits<float>::infinity();
    CHECK(exp32(0.0f) == 1.0f);
    CHECK(exp32(-inf) == 0.0f);
    CHECK(exp32(-1e30f) == 0.0f);
    CHECK(exp32(inf) == inf);
    CHECK(exp32(88.73f) == inf);
    CHECK(std::isfinite(exp32(88.72f)));
    CHECK(std::isnan(exp32(std::nanf(""))));
    for (float x = -103.9f; x < -87.3f; x += 0.01f) CHECK(ulps(exp32(x), std::exp(static_cast<double>(x))) <= 1.0);
}

TEST_CASE("silu, gelu and their slopes") {
    for (double x = -12.0; x < 12.0; x += 0.0013) {
        const float f = static_cast<float>(x);
        const double v = f, s = 1.0 / (1.0 + std::exp(-v)), step = 1e-5;
        CHECK(std::abs(sigmoid32(f) - s) <= 3e-7 * s);
        CHECK(std::abs(silu32(f) - v * s) <= 4e-7 * std::abs(v * s));
        CHECK(std::abs(silu32_slope(f) - s * (1.0 + v * (1.0 - s))) <= 1e-6);
        CHECK(std::abs(gelu32(f) - gelu64(v)) <= 4e-7 * std::max(1.0, std::abs(v)));
        CHECK(std::abs(gelu32_slope(f) - (gelu64(v + step) - gelu64(v - step)) / (2 * step)) <= 2e-6);
    }
    CHECK(gelu32(100.0f) == 100.0f);
    CHECK(gelu32(-100.0f) == 0.0f);
    CHECK(gelu32_slope(100.0f) == 1.0f);
    CHECK(gelu32_slope(-100.0f) == 0.0f);
}
