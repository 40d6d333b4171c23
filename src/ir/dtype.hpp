// Element types of tensors. bf16 arithmetic is always done in fp32; these are storage types.
#pragma once
#include <bit>
#include <cstdint>
#include <string_view>

namespace quadrille {

enum class DType : std::uint8_t { f32, bf16, f64, i32, u8 };

constexpr int bytes_of(DType t) {
    switch (t) {
        case DType::f32: case DType::i32: return 4;
        case DType::bf16: return 2;
        case DType::f64: return 8;
        case DType::u8: return 1;
    }
    return 0;
}

constexpr std::string_view name_of(DType t) {
    switch (t) {
        case DType::f32: return "f32";
        case DType::bf16: return "bf16";
        case DType::f64: return "f64";
        case DType::i32: return "i32";
        case DType::u8: return "u8";
    }
    return "?";
}

// The upper half of an fp32. Conversion rounds to nearest even and keeps NaN a NaN.
struct bf16 {
    std::uint16_t bits = 0;
    bf16() = default;
    explicit bf16(float x) {
        const auto u = std::bit_cast<std::uint32_t>(x);
        const std::uint32_t rounded = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16;
        const bool is_nan = (u & 0x7FFFFFFFu) > 0x7F800000u;
        bits = static_cast<std::uint16_t>(is_nan ? ((u >> 16) | 0x40u) : rounded);
    }
    explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};

}  // namespace quadrille
