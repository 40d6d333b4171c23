// Arithmetic on small fp32 tiles in the cache: vectors, a matrix product, a transpose, loads and stores of 16-bit rows. One
// thread each; no allocation. Owns no blocking: whoever calls has chosen tiles that fit.
//
// Every tile has rows of a multiple of `tile_lanes` floats, 64-byte aligned. Sums run in ascending order of the contracted
// index, one FMA a term, so the bits do not depend on the width of the machine's vectors.
#pragma once
#include "ir/dtype.hpp"
#include <cmath>
#include <cstdint>
#include <cstring>

namespace quadrille {

constexpr std::int64_t tile_lanes = 16;
constexpr std::int64_t whole_lanes(std::int64_t n) { return (n + tile_lanes - 1) / tile_lanes * tile_lanes; }

// The machine's widest vector: 16 floats with AVX-512, 8 with AVX, else 4.
constexpr int vector_bytes = __BIGGEST_ALIGNMENT__ > 64 ? 64 : __BIGGEST_ALIGNMENT__;
constexpr int vector_floats = vector_bytes / 4;
using Floats = float __attribute__((vector_size(vector_bytes)));
using Words = std::uint32_t __attribute__((vector_size(vector_bytes)));
using HalfWords = std::uint16_t __attribute__((vector_size(vector_bytes / 2)));

inline Floats load(const float* p) {
    Floats x;
    std::memcpy(&x, p, sizeof x);
    return x;
}
template <HalfWidth T>
Floats load(const T* p) {
    HalfWords half;
    std::memcpy(&half, p, sizeof half);
    return T::template widen<Floats>(__builtin_convertvector(half, Words));
}
inline void store(float* p, Floats x) { std::memcpy(p, &x, sizeof x); }
template <HalfWidth T>
void store(T* p, Floats x) {
    const auto half = __builtin_convertvector(T::template narrow<Words>(x), HalfWords);
    std::memcpy(static_cast<void*>(p), &half, sizeof half);
}
inline Floats broadcast(float x) { return x - Floats{}; }  // x + 0 would not do: it is 0 for -0
inline Floats larger(Floats a, Floats b) { return a > b ? a : b; }

// a·b + c, rounded once: the compiler makes one instruction of the loop. Where the machine has no FMA, two roundings.
inline Floats multiply_add(Floats a, Floats b, Floats c) {
#ifdef __FP_FAST_FMAF
    for (int i = 0; i < vector_floats; ++i) c[i] = std::fma(a[i], b[i], c[i]);
    return c;
#else
    return a * b + c;
#endif
}

// 2^x for x <= 127, relative error below 2e-7; 0 below -126.5, NaN for NaN. 2^0 is exactly 1.
inline Floats exp2(Floats x) {
    x = larger(broadcast(-127.0f), x);  // a NaN stays
    const Floats shifted = x + 0x1.8p23f;  // the nearest integer, in the low bits
    const Floats f = x - (shifted - 0x1.8p23f);
    Floats p = broadcast(1.5453163e-4f);         // (2^f - 1)/f, interpolated at Chebyshev's nodes of [-1/2, 1/2]
    p = multiply_add(p, f, broadcast(1.3390863e-3f));
    p = multiply_add(p, f, broadcast(9.6180826e-3f));
    p = multiply_add(p, f, broadcast(5.5503571e-2f));
    p = multiply_add(p, f, broadcast(2.4022651e-1f));
    p = multiply_add(p, f, broadcast(6.9314719e-1f));
    p = multiply_add(p, f, broadcast(1.0f));
    Words bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    bits = (bits << 23) + (127u << 23);
    Floats power;
    std::memcpy(&power, &bits, sizeof power);
    return p * power;
}

// c[m,n] (+)= a[m,k] b[k,n]; a[i,j] lies at a[i·a_row + j·a_step], so either order of a can be read. n is a multiple of
// tile_lanes; b and c have leading dimensions b_row and c_row.
struct TileProduct {
    std::int64_t m, n, k;
    const float* a;
    std::int64_t a_row, a_step;
    const float* b;
    std::int64_t b_row;
    float* c;
    std::int64_t c_row;
    bool accumulate;
};
void tile_product(const TileProduct& p);

// to[cols,rows] = from[rows,cols] transposed; rows and cols are multiples of tile_lanes.
void tile_transpose(const float* from, std::int64_t from_row, float* to, std::int64_t to_row, std::int64_t rows, std::int64_t cols);

// The element `index` of an array.
inline const void* element(const void* base, DType type, std::int64_t index) {
    return static_cast<const std::byte*>(base) + index * bytes_of(type);
}
inline void* element(void* base, DType type, std::int64_t index) {
    return static_cast<std::byte*>(base) + index * bytes_of(type);
}

// to[rows, to_row] = from[rows, d] for rows `stride` elements apart, in f32; columns d .. to_row become 0.
void load_rows(const void* from, DType type, std::int64_t stride, std::int64_t rows, std::int64_t d, float* to, std::int64_t to_row);
// to[rows, d] (+)= scale · from[rows, from_row], to's rows being `stride` elements apart. accumulate wants f32.
void store_rows(const float* from, std::int64_t from_row, float scale, void* to, DType type, std::int64_t stride,
                std::int64_t rows, std::int64_t d, bool accumulate);

}  // namespace quadrille
