// The update of one parameter, for every device: the same fp32 operations in the same order, so that all get the same bits.
#pragma once
#include "kernels/optimizer.hpp"

#include <bit>
#include <cmath>
#include <cstdint>

namespace quadrille {

// Whether a step counts: the gradient's norm is a number.
constexpr bool update_made(double norm2) { return (std::bit_cast<std::uint64_t>(norm2) >> 52 & 0x7FFu) != 0x7FFu; }

// What the gradient is multiplied by. Reads the norm, so it is for code of the device.
constexpr float gradient_factor(const Clip& clip) { return static_cast<float>(clip.grad_scale * clip_factor(*clip.norm2, clip.clip)); }

// AdamW's numbers as its arithmetic takes them.
struct AdamWFactors {
    float lr, eps, weight_decay, beta1, beta2, rest1, rest2, unbias1, unbias2;
    constexpr explicit AdamWFactors(const AdamW& a)
        : lr(static_cast<float>(a.lr)), eps(static_cast<float>(a.eps)), weight_decay(static_cast<float>(a.weight_decay)),
          beta1(static_cast<float>(a.beta1)), beta2(static_cast<float>(a.beta2)), rest1(static_cast<float>(1.0 - a.beta1)),
          rest2(static_cast<float>(1.0 - a.beta2)), unbias1(static_cast<float>(1.0 / a.correction1)),
          unbias2(static_cast<float>(1.0 / a.correction2)) {}
};

// The new master; m and v become the new moments. g is the scaled gradient, decay the weight decay or 0.
constexpr float adamw_element(const AdamWFactors& a, float decay, float g, float master, float& m, float& v) {
    m = a.beta1 * m + a.rest1 * g;
    v = a.beta2 * v + a.rest2 * g * g;
    const float step = m * a.unbias1 / (std::sqrt(v * a.unbias2) + a.eps);
    return master - a.lr * (step + decay * master);
}

constexpr float sgd_element(float lr, float decay, float g, float master) { return master - lr * (g + decay * master); }

}  // namespace quadrille
