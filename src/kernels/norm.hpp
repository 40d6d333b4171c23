// LayerNorm and RMSNorm over the rows of x[rows,h]. Statistics are fp32 and are recomputed from x in the backward pass, never
// stored. Gain and bias have the activations' type.
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

}  // namespace quadrille
