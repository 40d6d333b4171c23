// The 16-bit element types: every one of their values, every border between two of them, and what lies outside.
#include "ir/dtype.hpp"

#include <doctest.h>

#include <cmath>
#include <limits>

using namespace quadrille;

namespace {

constexpr float inf = std::numeric_limits<float>::infinity();

template <class T>
T of_bits(std::uint32_t bits) {
    T x;
    x.bits = static_cast<std::uint16_t>(bits);
    return x;
}

// An f16 by the definition of the format.
double half_value(std::uint32_t bits) {
    const int exponent = static_cast<int>(bits >> 10 & 31), mantissa = static_cast<int>(bits & 1023);
    const double sign = bits & 0x8000u ? -1 : 1;
    if (exponent == 31) return mantissa ? std::nan("") : sign * inf;
    return sign * (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25));
}

std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }

}  // namespace

TEST_CASE("each of the 65536 halves is what the format says, sign of zero included") {
    std::int64_t wrong = 0;
    for (std::uint32_t h = 0; h < 65536; ++h) {
        const double want = half_value(h);
        const auto got = static_cast<float>(of_bits<f16>(h));
        wrong += std::isnan(want) ? !std::isnan(got) : bits_of(got) != bits_of(static_cast<float>(want));
    }
    CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("every 16-bit value comes back from fp32, NaN as a NaN", T, bf16, f16) {
    std::int64_t wrong = 0;
    for (std::uint32_t h = 0; h < 65536; ++h) {
        const auto x = static_cast<float>(of_bits<T>(h));
        wrong += std::isnan(x) ? !std::isnan(static_cast<float>(T(x))) : T(x).bits != h;
    }
    CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("between neighbours the nearer, in the middle the even one, to infinity and through the subnormals", T, bf16, f16) {
    const std::uint32_t infinite = T(inf).bits;
    const auto value = [](std::uint32_t bits) { return static_cast<double>(static_cast<float>(of_bits<T>(bits))); };
    std::int64_t wrong = 0;
    for (const std::uint32_t sign : {0u, 0x8000u})
        for (std::uint32_t h = 0; h < infinite; ++h) {
            // Behind the largest number comes where its exponent would go on, although it is written as infinity.
            const double low = value(h | sign), high = h + 1 < infinite ? value((h + 1) | sign) : 2 * low - value((h - 1) | sign);
            const auto middle = static_cast<float>((low + high) / 2);  // exact: fp32 has more digits
            wrong += T(middle).bits != ((h + h % 2) | sign);
            wrong += T(std::nextafter(middle, 0.0f)).bits != (h | sign);
            wrong += T(std::nextafter(middle, sign ? -inf : inf)).bits != ((h + 1) | sign);
        }
    CHECK(wrong == 0);
}

TEST_CASE("the ends of f16") {
    CHECK(static_cast<float>(f16(65504.0f)) == 65504.0f);
    CHECK(static_cast<float>(f16(65519.99f)) == 65504.0f);
    CHECK(static_cast<float>(f16(65520.0f)) == inf);
    CHECK(static_cast<float>(f16(-1e30f)) == -inf);
    CHECK(static_cast<float>(f16(inf)) == inf);
    CHECK(static_cast<float>(f16(0x1p-24f)) == 0x1p-24f);
    CHECK(f16(0x1p-25f).bits == 0);
    CHECK(f16(-0x1.8p-25f).bits == 0x8001);
    CHECK(f16(-1e-40f).bits == 0x8000);
    CHECK(std::isnan(static_cast<float>(f16(std::bit_cast<float>(0x7F800001u)))));
    CHECK(std::isnan(static_cast<float>(f16(std::bit_cast<float>(0xFFFFFFFFu)))));
    CHECK(half_width(DType::f16));
    CHECK(half_width(DType::bf16));
    CHECK_FALSE(half_width(DType::f32));
    CHECK(bytes_of(DType::f16) == 2);
    CHECK(name_of(DType::f16) == "f16");
}
