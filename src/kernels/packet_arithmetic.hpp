// What packets say of one element, for every device: the same operations in the same order, so that all make the same bits (kernels/packets.hpp).
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

namespace quadrille {

// Magnitudes as integers of the same order, infinity above all numbers and NaN above infinity.
constexpr std::uint32_t magnitude(float x) { return std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFu; }
constexpr std::uint32_t infinite_magnitude = 0x7F800000u;

// fp16: the power of two that takes the largest magnitude of a block to [2^14, 2^15); 1 for a block that is not finite. Of the smallest numbers, as
// large as fp32 has it with its inverse: 2^126, which subnormal ones get by their exponent of -127 already.
constexpr float fp16_factor(std::uint32_t most) {
    if (most == 0 || most >= infinite_magnitude) return 1.0f;
    const int power = 14 + 127 - static_cast<int>(most >> 23);
    return std::bit_cast<float>(static_cast<std::uint32_t>((power < 126 ? power : 126) + 127) << 23);
}

// qsgd: how many steps up and down so many bits count.
constexpr float qsgd_levels(int bits) { return static_cast<float>((1 << (bits - 1)) - 1); }

// qsgd: the steps of a block whose largest magnitude this is. A block that is not finite has a step of NaN.
struct QsgdSteps {
    float top, levels, step;
    bool drawn;  // else every element is 0 steps
    constexpr QsgdSteps(std::uint32_t most, int bits)
        : top(std::bit_cast<float>(most)), levels(qsgd_levels(bits)),
          step(most < infinite_magnitude ? top / levels : std::bit_cast<float>(0x7FC00000u)), drawn(most > 0 && most < infinite_magnitude) {}

    // Steps of v with its sign, up or down by 64 random bits.
    constexpr float of(float v, std::uint64_t random) const {
        if (!drawn) return std::copysign(0.0f, v);
        const float raised = std::floor(std::fabs(v) / top * levels + static_cast<float>(random >> 40) * 0x1p-24f);
        return std::copysign(raised < levels ? raised : levels, v);
    }
};

}  // namespace quadrille
