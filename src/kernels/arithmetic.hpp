// Scalar fp32 functions of the kernels, in plain arithmetic without branches: a loop over them vectorises, and every device that
// rounds IEEE operations correctly computes the same bits. Loads and stores of f32, bf16 and f16 elements. No loops, no intrinsics.
// All is constexpr, which nvcc takes as code for the device as well (--expt-relaxed-constexpr).
#pragma once
#include "ir/dtype.hpp"
#include <bit>
#include <cmath>
#include <cstdint>

namespace quadrille {

// An element as fp32, and fp32 rounded to an element.
constexpr float load(float x) { return x; }
constexpr void store(float& y, float x) { y = x; }
template <HalfWidth T>
constexpr float load(T x) { return static_cast<float>(x); }
template <HalfWidth T>
constexpr void store(T& y, float x) { y = T(x); }

// e^x within 1.1 ulp; 0 below -103.97, infinity above 88.72, NaN of NaN, subnormal results rounded twice.
// x = n ln2 + r, |r| <= ln2/2 (Cody and Waite 1980); e^r by a near-minimax polynomial; 2^n in two factors, so that no factor overflows.
constexpr float exp32(float x) {
    x = x < -104.0f ? -104.0f : x;
    x = x > 89.0f ? 89.0f : x;
    const float shifted = std::fma(x, 0x1.715476p+0f, 0x1.8p+23f);  // round to an integer in the low bits of the mantissa
    const float n = shifted - 0x1.8p+23f;
    float r = std::fma(n, -0x1.62e4p-1f, x);
    r = std::fma(n, -0x1.7f7d1cp-20f, r);
    float p = 0x1.6d471ap-10f;
    p = std::fma(p, r, 0x1.124188p-7f);
    p = std::fma(p, r, 0x1.5554ecp-5f);
    p = std::fma(p, r, 0x1.555484p-3f);
    p = std::fma(p, r, 0.5f);
    p = std::fma(p * r, r, r) + 1.0f;
    const std::int32_t exponent = std::bit_cast<std::int32_t>(shifted) - 0x4B400000;
    const std::int32_t half = exponent >> 1;
    return p * std::bit_cast<float>((half + 127) << 23) * std::bit_cast<float>((exponent - half + 127) << 23);
}

// 1 / (1 + e^-x)
constexpr float sigmoid32(float x) { return 1.0f / (1.0f + exp32(-x)); }

// silu(x) = x sigmoid(x), and its derivative
constexpr float silu32(float x) { return x * sigmoid32(x); }
constexpr float silu32_slope(float x) {
    const float s = sigmoid32(x);
    return s * std::fma(x, 1.0f - s, 1.0f);
}

// gelu(x) = x/2 (1 + tanh(u/2)) = x sigmoid(u),  u = 2 sqrt(2/pi) (x + 0.044715 x^3); the second form keeps the negative tail exact.
constexpr float gelu32_argument(float x) { return x * std::fma(0.0713548162726f, x * x, 1.5957691216057f); }
constexpr float gelu32(float x) { return x * sigmoid32(gelu32_argument(x)); }
constexpr float gelu32_slope(float x) {
    const float s = sigmoid32(gelu32_argument(x));
    const float du = std::fma(0.2140644488178f, x * x, 1.5957691216057f);
    return std::fma(x * du, s * (1.0f - s), s);
}

}  // namespace quadrille
