// Element types of tensors. Arithmetic on the 16-bit ones, bf16 and f16, is always done in fp32: they are storage types.
#pragma once
#include <bit>
#include <concepts>
#include <cstdint>
#include <string_view>

namespace quadrille {

enum class DType : std::uint8_t { f32, bf16, f16, f64, i32, u8 };

constexpr int bytes_of(DType t) {
    switch (t) {
        case DType::f32: case DType::i32: return 4;
        case DType::bf16: case DType::f16: return 2;
        case DType::f64: return 8;
        case DType::u8: return 1;
    }
    return 0;
}

constexpr std::string_view name_of(DType t) {
    switch (t) {
        case DType::f32: return "f32";
        case DType::bf16: return "bf16";
        case DType::f16: return "f16";
        case DType::f64: return "f64";
        case DType::i32: return "i32";
        case DType::u8: return "u8";
    }
    return "?";
}

// The conversions of the 16-bit types round to nearest even and keep NaN a NaN. They are without branches, for a number (F float, W
// std::uint32_t) and for vectors of both alike: whoever loops over elements has one definition, which vectorises. The 16 bits are in the
// low half of a W.

// The upper half of an fp32.
struct bf16 {
    std::uint16_t bits = 0;
    constexpr bf16() = default;
    constexpr explicit bf16(float x) : bits(static_cast<std::uint16_t>(narrow<std::uint32_t>(x))) {}
    constexpr explicit operator float() const { return widen<float>(std::uint32_t{bits}); }

    template <class F, class W>
    static constexpr F widen(W half) { return std::bit_cast<F>(half << 16); }
    template <class W, class F>
    static constexpr W narrow(F x) {
        const W u = std::bit_cast<W>(x), rounded = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16, nan = (u >> 16) | 0x40u;
        return (u & 0x7FFFFFFFu) > 0x7F800000u ? nan : rounded;
    }
};

// IEEE 754's binary16: 5 bits of exponent, 10 of mantissa, subnormals down to 2^-24, infinity from 65520 on.
struct f16 {
    std::uint16_t bits = 0;
    constexpr f16() = default;
    constexpr explicit f16(float x) : bits(static_cast<std::uint16_t>(narrow<std::uint32_t>(x))) {}
    constexpr explicit operator float() const { return widen<float>(std::uint32_t{bits}); }

    // Exponents are 112 apart, or 224 where all ones stand for infinity and NaN. A subnormal counts steps of 2^-24, and so do fp32's numbers
    // from 0.5 on: the half's bits behind the leading one of 0.5 make 0.5 more than its value.
    template <class F, class W>
    static constexpr F widen(W half) {
        const W shifted = (half & 0x7FFFu) << 13, sign = (half & 0x8000u) << 16;
        const W normal = shifted + 0x38000000u, special = shifted + 0x70000000u;
        const W subnormal = std::bit_cast<W>(std::bit_cast<F>((half & 0x3FFu) | 0x3F000000u) - 0.5f);
        const W large = shifted < 0x0F800000u ? normal : special;
        return std::bit_cast<F>((shifted < 0x00800000u ? subnormal : large) | sign);
    }
    // The other way: adding 0.5 to what is below 2^-14 rounds it to steps of 2^-24. A carry out of the mantissa counts the exponent up, to
    // infinity at the end.
    template <class W, class F>
    static constexpr W narrow(F x) {
        const W u = std::bit_cast<W>(x), magnitude = u & 0x7FFFFFFFu, sign = (u >> 16) & 0x8000u;
        const W normal = (magnitude - 0x38000000u + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13;
        const W subnormal = std::bit_cast<W>(std::bit_cast<F>(magnitude) + 0.5f) - 0x3F000000u;
        const W nan = (magnitude >> 13 & 0x1FFu) | 0x7E00u, infinity = (u & 0u) | 0x7C00u;
        const W special = magnitude > 0x7F800000u ? nan : infinity, finite = magnitude < 0x38800000u ? subnormal : normal;
        return (magnitude < 0x47800000u ? finite : special) | sign;
    }
};

template <class T>
concept HalfWidth = std::same_as<T, bf16> || std::same_as<T, f16>;
constexpr bool half_width(DType t) { return t == DType::bf16 || t == DType::f16; }

}  // namespace quadrille
