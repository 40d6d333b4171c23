// LayerNorm and RMSNorm over the rows of x[rows,h]. Statistics are fp32 and are recomputed from x in the backward pass, never
// stored. Results are the same for any number of OpenMP threads. Gain and bias have the activations' type.
//
//   layernorm (Ba et al. 2016):         y = (x - mean) rstd gain + bias,   rstd = 1 / sqrt(mean((x - mean)^2) + eps)
//   rmsnorm (Zhang and Sennrich 2019):  y = x rstd gain,                   rstd = 1 / sqrt(mean(x^2) + eps)
#pragma once
#include "ir/dtype.hpp"
#include <cstdint>

namespace quadrille {

struct Norm {
    std::int64_t rows = 0, h = 0;
    float eps = 1e-5f;
    bool rms = false;
    DType t = DType::f32;  // of x, r, gain, bias, y, dy, dx
};

// bias may be null. y may be x.
void norm(const Norm& n, const void* x, const void* gain, const void* bias, void* y);

// sum = x + r, rounded to t; y = norm(sum). sum may be x or r.
void residual_norm(const Norm& n, const void* x, const void* r, const void* gain, const void* bias, void* sum, void* y);

// dx of y = norm(x) given dy. dx may be dy, not x.
void norm_dx(const Norm& n, const void* x, const void* gain, const void* dy, void* dx);

// dgain[h] = sum over rows of dy xhat, dbias[h] = sum over rows of dy (null: not wanted); + the old value if accumulate. Both in
// out_type, f32, bf16 or f16. f32 sums over blocks of 64 rows, blocks added in order. workspace: norm_dw_workspace bytes of this call alone.
void norm_dw(const Norm& n, const void* x, const void* dy, void* dgain, void* dbias, DType out_type, bool accumulate, void* workspace);
std::int64_t norm_dw_workspace(const Norm& n);  // each row's mean and deviation

}  // namespace quadrille
