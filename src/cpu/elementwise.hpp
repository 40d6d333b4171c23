// Elementwise kernels, bias sums, dropout and rotary positions. Buffers are packed and local; t is their common type, f32, bf16
// or f16; arithmetic is fp32. Every result is the same for any number of OpenMP threads. In-place use (y = x) is allowed except where said.
#pragma once
#include "ir/dtype.hpp"
#include <cstdint>

namespace quadrille {

// y = a + b
void add(const void* a, const void* b, void* y, std::int64_t count, DType t);

// y = factor x, the factor rounded to fp32
void scale(const void* x, double factor, void* y, std::int64_t count, DType t);

// y[rows,cols] = x[rows,cols] + bias[cols]
void add_bias(const void* x, const void* bias, void* y, std::int64_t rows, std::int64_t cols, DType t);

// db[cols] = sum over rows of dy[rows,cols] (+ db if accumulate). f32 sums over blocks of 64 rows, blocks added in order.
// dy and db are f32, bf16 or f16, each for itself.
void column_sum(const void* dy, DType dy_type, void* db, DType db_type, std::int64_t rows, std::int64_t cols, bool accumulate);

// y = gelu(x) = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))      (Hendrycks and Gimpel 2016, tanh form)
void gelu(const void* x, void* y, std::int64_t count, DType t);
// dx = dy gelu'(x); dx may be dy or x
void gelu_dx(const void* x, const void* dy, void* dx, std::int64_t count, DType t);

// y = silu(gate) up, silu(z) = z / (1 + exp(-z))                    (Shazeer 2020, eq. 6)
void swiglu(const void* gate, const void* up, void* y, std::int64_t count, DType t);
// dgate = dy up silu'(gate), dup = dy silu(gate)
void swiglu_dx(const void* gate, const void* up, const void* dy, void* dgate, void* dup, std::int64_t count, DType t);

// The local block x[b,s,h] of a global tensor [samples, global_s, global_h] and the global index of each of its elements.
struct Dropout {
    std::int64_t b = 0, s = 0, h = 0;
    const std::int64_t* sample_index = nullptr;   // [b]
    const std::int64_t* position = nullptr;       // [s]
    const std::int64_t* channel_index = nullptr;  // [h]
    std::int64_t global_s = 0, global_h = 0;
    double rate = 0.0;      // in [0, 1)
    std::uint64_t key = 0;  // random_key(seed, step, stream)
    DType t = DType::f32;
};

// y = x keep / (1 - rate), keep = keeps(key, (sample global_s + position) global_h + channel): the same mask on every grid. Linear
// and diagonal, so it is its own backward: dx = dropout(dy).
void dropout(const Dropout& d, const void* x, void* y);

// Rotates the pairs (i, i + d/2) of x[b,s,n,d] by the angle position[s] base^(-2i/d)   (Su et al. 2021, the half-split form of
// GPT-NeoX and Llama). d is even. inverse rotates back, which is the backward pass. Angles are taken in double: right at any position.
struct Rotary {
    std::int64_t b = 0, s = 0, n = 0, d = 0;
    const std::int64_t* position = nullptr;  // [s], global
    double base = 10000.0;
    bool inverse = false;
    DType t = DType::f32;
};
void rotary(const Rotary& r, const void* x, void* y);

// dst = src, rounded to dst_type. Equal types copy the bits.
void cast(const void* src, DType src_type, void* dst, DType dst_type, std::int64_t count);
// dst += src, added in fp32 and rounded to dst_type
void accumulate(const void* src, DType src_type, void* dst, DType dst_type, std::int64_t count);
// Zero bytes, on the whole team.
void zero(void* dst, std::int64_t bytes);

}  // namespace quadrille
