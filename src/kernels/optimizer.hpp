// What an update of parameters is about. Elementwise in fp32 over flat buffers.
#pragma once
#include "ir/dtype.hpp"
#include <cmath>
#include <cstdint>

namespace quadrille {

// How much a norm that is the square root of norm2 scales gradients; norm2 must be finite. Pascanu et al. 2013, section 3.2.
constexpr double clip_factor(double norm2, double clip) {
    const double norm = std::sqrt(norm2);
    return clip > 0 && norm > clip ? clip / (norm + 1e-6) : 1.0;
}

// Whether an update is made, and how much gradients are scaled, both known only where the gradient's norm is: on the device.
//   made: norm2 is finite.   factor = grad_scale clip_factor(norm2, clip)
struct Clip {
    const double* norm2 = nullptr;
    double clip = 0.0;
    double grad_scale = 1.0;  // the inverse of a loss scale
};

// AdamW with decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2, the schedule's factor folded into lr):
//   g = factor g;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
//   p -= lr ((m / correction1) / (sqrt(v / correction2) + eps) + weight_decay p)
struct AdamW {
    double lr = 0.0, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.0;
    double correction1 = 1.0, correction2 = 1.0;  // 1 - beta1^step, 1 - beta2^step
};

// SGD with decoupled weight decay: p -= lr (factor g + weight_decay p)
struct Sgd {
    double lr = 0.0, weight_decay = 0.0;
};

// A slice of `count` parameters. master is fp32; weight is its rounded copy, rewritten from the new master, or null where the
// master is the weight. The gradient is only read. m and v: AdamW's alone.
struct ParameterSlice {
    std::int64_t count = 0;
    float *master = nullptr, *m = nullptr, *v = nullptr;
    const void* gradient = nullptr;
    DType gradient_type = DType::f32;
    void* weight = nullptr;
    DType weight_type = DType::bf16;
    bool decays = false;  // else weight_decay counts as 0
};

}  // namespace quadrille
