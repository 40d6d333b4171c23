// What touches parameters outside the passes: norms of gradients, updates, initial values. Elementwise in fp32 over flat
// buffers, sums in float64 over fixed blocks: the same bits for any number of OpenMP threads.
#pragma once
#include "ir/dtype.hpp"
#include <cstdint>
#include <span>

namespace quadrille {

// Sum of g^2 in float64. Blocks of 1024 elements from the buffer's start are summed each for itself, then added in order.
// workspace: sum_squares_workspace bytes of this call alone.
double sum_squares(const void* g, DType g_type, std::int64_t count, void* workspace);
std::int64_t sum_squares_workspace(std::int64_t count);  // a sum for each block

// AdamW with decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2, the schedule's factor folded into lr):
//   g = grad_scale g;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
//   p -= lr ((m / correction1) / (sqrt(v / correction2) + eps) + weight_decay p)
struct AdamW {
    double lr = 0.0, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.0;
    double correction1 = 1.0, correction2 = 1.0;  // 1 - beta1^step, 1 - beta2^step
    double grad_scale = 1.0;                      // the clip factor, and the inverse of a loss scale
};

// SGD with decoupled weight decay: p -= lr (grad_scale g + weight_decay p)
struct Sgd {
    double lr = 0.0, weight_decay = 0.0, grad_scale = 1.0;
};

// A slice of `count` parameters. master is fp32; weight is its rounded copy, rewritten from the new master, or null where the
// master is the weight. The gradient is only read.
struct ParameterSlice {
    std::int64_t count = 0;
    float* master = nullptr;
    const void* gradient = nullptr;
    DType gradient_type = DType::f32;
    void* weight = nullptr;
    DType weight_type = DType::bf16;
};

void adamw(const ParameterSlice& s, float* m, float* v, const AdamW& a);
void sgd(const ParameterSlice& s, const Sgd& a);

// `count` elements that are consecutive both in the local buffer and in the global parameter.
struct Run {
    std::int64_t offset = 0;   // first element in the local buffer
    std::int64_t element = 0;  // its index in the global parameter
    std::int64_t count = 0;
};

// dst[offset + i] = deviation * random_normal(key, element + i) for every run: the same values on every grid.
void fill_normal(float* dst, std::span<const Run> runs, std::uint64_t key, double deviation);
// The same with values uniform in [-bound, bound).
void fill_uniform(float* dst, std::span<const Run> runs, std::uint64_t key, double bound);

}  // namespace quadrille
