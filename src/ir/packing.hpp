// How a slice of a gradient is packed for the wire: the methods, and the bytes of a packet, which follow from the method and the number of
// elements alone, so that a plan counts them. Pure; Kernels pack and unpack (kernels/packets.hpp).
//
//   bf16  every element rounded
//   fp16  block by block of `packing_block` elements: a power of two (f32), by which the elements were multiplied so that the largest is just
//         below 2^15, and the products as fp16: none overflows, and only what is 2^39 times smaller than the largest vanishes
//   topk  block by block of `topk_block` elements: of the largest ones the values (f32), then their places (u16), ascending
//   qsgd  block by block of `packing_block` elements: a step (f32), largest / (2^(bits-1) - 1), and how many of it each element is, rounded
//         up or down at random so that the mean is right (Alistarh et al. 2017, section 3.1, with the largest magnitude as the norm)
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace quadrille {

enum class PackingMethod : std::uint8_t { none, bf16, fp16, topk, qsgd };

struct Packing {
    PackingMethod method = PackingMethod::none;
    double ratio = 0;  // topk: part of a block's elements that is sent
    int bits = 0;      // qsgd: of an element, 2 to 8
    friend bool operator==(const Packing&, const Packing&) = default;
};

constexpr std::string_view name_of(PackingMethod m) {
    switch (m) {
        case PackingMethod::none: return "none";
        case PackingMethod::bf16: return "bf16";
        case PackingMethod::fp16: return "fp16";
        case PackingMethod::topk: return "topk";
        case PackingMethod::qsgd: return "qsgd";
    }
    return "?";
}

constexpr std::int64_t packing_block = 1024;       // elements; packets are of whole blocks
constexpr std::int64_t topk_block = 65536;         // so that a place takes 16 bits; the last one may be shorter
constexpr std::int64_t topk_entry = 4 + 2;         // bytes

// Of a block of so many elements, how many topk sends.
inline std::int64_t topk_count(const Packing& p, std::int64_t elements) {
    return std::clamp<std::int64_t>(static_cast<std::int64_t>(std::ceil(p.ratio * static_cast<double>(elements))), 1, elements);
}

// Of a packet of `count` elements, whole blocks.
inline std::int64_t packet_bytes(const Packing& p, std::int64_t count) {
    const std::int64_t blocks = count / packing_block;
    switch (p.method) {
        case PackingMethod::none: return 4 * count;
        case PackingMethod::bf16: return 2 * count;
        case PackingMethod::fp16: return blocks * (4 + 2 * packing_block);
        case PackingMethod::topk: {
            const std::int64_t rest = count % topk_block;
            return topk_entry * (count / topk_block * topk_count(p, topk_block) + (rest ? topk_count(p, rest) : 0));
        }
        case PackingMethod::qsgd: return blocks * (4 + packing_block / 8 * p.bits);
    }
    return 0;
}

}  // namespace quadrille
