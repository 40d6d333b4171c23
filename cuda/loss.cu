// Cross-entropy, a block of threads for each token's row of logits. The probabilities are never stored: each pass reads a row once in packs of 16
// bytes and keeps nothing but sums; the gradient is written where the logits were read. Bytes moved are the least possible: 2 or 4 a logit for each
// of max and sums, twice that for the gradient.
//
// Rows need not begin at multiples of 16 bytes (50257 columns): packs are counted from the multiple at or before the row's first element, and only
// the first and the last one go element by element. A thread adds a pack's terms in f32, packs and threads in float64, in a fixed order.
#include "cuda/kernels.hpp"
#include "cuda/launch.cuh"
#include "cuda/pack.cuh"
#include "cuda/ptx.cuh"
#include "cuda/reduce.cuh"
#include "cuda/with_type.hpp"

#include <limits>
#include <numbers>

namespace quadrille {
namespace {

using namespace cuda;

constexpr unsigned row_threads = 256, loss_threads = 1024, token_threads = 256;
constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

// Elements that p lies behind a multiple of 16 bytes.
template <class T>
__device__ __forceinline__ int behind_pack(const T* p) {
    return static_cast<int>(reinterpret_cast<std::uintptr_t>(p) % pack_bytes / sizeof(T));
}

// e^(x - top) of x that is not above the top, by the fast power of two: within 2^-22 of itself and, for the rounding of its exponent, 2^-24 |x -
// top|. It is the same in the sums and in the gradient.
__device__ __forceinline__ float part(float x, float top) { return exp2_fast((x - top) * std::numbers::log2e_v<float>); }

// This thread's packs of a row of `columns`: whole(first) for one that is of the row entirely, single(c) for each column of another. Packs lie
// `shift` elements before multiples of their size.
template <class T, class Whole, class Single>
__device__ __forceinline__ void each_pack(int shift, std::int64_t columns, Whole whole, Single single) {
    constexpr int size = pack_size<T>;
    for (std::int64_t first = size * static_cast<std::int64_t>(threadIdx.x) - shift; first < columns; first += size * row_threads) {
        if (first >= 0 && first + size <= columns) whole(first);
        else
            for (std::int64_t c = first < 0 ? 0 : first; c < first + size && c < columns; ++c) single(c);
    }
}

// The target's column in this rank's block, or -1.
__device__ __forceinline__ std::int64_t local_target(const Logits& l, std::int32_t target) {
    const std::int64_t column = target - l.first_column;
    return column >= 0 && column < l.real_columns ? column : -1;
}

template <class T>
__global__ void __launch_bounds__(row_threads) row_max(const Logits l, const T* logits, float* max) {
    __shared__ float warps[most_warps];
    const T* const row = logits + blockIdx.x * l.columns;
    float best = minus_infinity;
    each_pack<T>(
        behind_pack(row), l.real_columns,
        [&](std::int64_t first) {
            const Pack<T> x = load_pack(row + first);
            for (int i = 0; i < pack_size<T>; ++i) best = Largest{}(best, load(x[i]));
        },
        [&](std::int64_t c) { best = Largest{}(best, load(row[c])); });
    best = block_reduce(best, minus_infinity, warps, Largest{});
    if (threadIdx.x == 0) max[blockIdx.x] = best;
}

// A NaN logit makes the sum NaN, so the loss shows it, although row_max passes over it.
template <class T>
__global__ void __launch_bounds__(row_threads) row_sums(const Logits l, const T* logits, const float* max, const std::int32_t* target, float* sums) {
    __shared__ double warps[most_warps];
    const T* const row = logits + blockIdx.x * l.columns;
    const float top = max[blockIdx.x];
    double total = 0.0;
    each_pack<T>(
        behind_pack(row), l.real_columns,
        [&](std::int64_t first) {
            const Pack<T> x = load_pack(row + first);
            float sum = 0.0f;
            for (int i = 0; i < pack_size<T>; ++i) sum += part(load(x[i]), top);
            total += static_cast<double>(sum);
        },
        [&](std::int64_t c) { total += static_cast<double>(part(load(row[c]), top)); });
    total = block_reduce(total, 0.0, warps, Sum{});
    if (threadIdx.x != 0) return;
    const std::int64_t column = local_target(l, target[blockIdx.x]);
    sums[blockIdx.x] = static_cast<float>(total);
    sums[l.tokens + blockIdx.x] = column < 0 ? 0.0f : load(row[column]) - top;
}

// `alike`: rows of logits and of dlogits lie alike within 16 bytes.
template <class T>
__global__ void __launch_bounds__(row_threads) row_gradient(const Logits l, const T* logits, const float* max, const std::int32_t* target,
                                                            const float* dsums, T* dlogits, bool alike) {
    const T* const row = logits + blockIdx.x * l.columns;
    T* const d = dlogits + blockIdx.x * l.columns;
    const float dsum = dsums[blockIdx.x], dtarget = dsums[l.tokens + blockIdx.x], top = max[blockIdx.x];
    // An uncounted token: exp(inf - inf) times 0 would be NaN.
    const std::int64_t written = dsum == 0.0f && dtarget == 0.0f ? 0 : l.real_columns;
    const std::int64_t column = written != 0 ? local_target(l, target[blockIdx.x]) : -1;
    const auto gradient = [&](T x, std::int64_t c) {
        const float y = dsum * part(load(x), top);
        return c == column ? y + dtarget : y;
    };
    const auto single = [&](std::int64_t c) {
        if (c < written) store(d[c], gradient(row[c], c));
        else d[c] = T{};
    };
    each_pack<T>(
        behind_pack(d), l.columns,
        [&](std::int64_t first) {
            if (!alike || (first < written && first + pack_size<T> > written)) {
                for (int i = 0; i < pack_size<T>; ++i) single(first + i);
                return;
            }
            Pack<T> y{};
            if (first < written) {
                const Pack<T> x = load_pack(row + first);
                for (int i = 0; i < pack_size<T>; ++i) store(y[i], gradient(x[i], first + i));
            }
            store_pack(d + first, y);
        },
        single);
}

__global__ void __launch_bounds__(loss_threads) sum_of_losses(std::int64_t tokens, const float* sums, const std::uint8_t* mask, double* loss,
                                                              bool accumulate) {
    __shared__ double warps[most_warps];
    double sum = 0.0;
    for (std::int64_t i = threadIdx.x; i < tokens; i += blockDim.x)
        if (mask[i]) sum += std::log(static_cast<double>(sums[i])) - static_cast<double>(sums[tokens + i]);
    sum = block_reduce(sum, 0.0, warps, Sum{});
    if (threadIdx.x == 0) *loss = accumulate ? *loss + sum : sum;
}

__global__ void __launch_bounds__(token_threads) loss_gradient(std::int64_t tokens, const float* sums, const std::uint8_t* mask, const double* dloss,
                                                               float* dsums) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * token_threads + threadIdx.x;
    if (i >= tokens) return;
    dsums[i] = mask[i] ? static_cast<float>(*dloss / static_cast<double>(sums[i])) : 0.0f;
    dsums[tokens + i] = mask[i] ? static_cast<float>(-*dloss) : 0.0f;
}

Grid grid_of(const Logits& l) { return {static_cast<unsigned>(l.tokens), row_threads}; }

}  // namespace

void CudaKernels::logit_max(const Logits& l, const void* logits, float* max) {
    with_type(l.t, [&]<class T>(T) { launch(row_max<T>, grid_of(l), stream_, l, static_cast<const T*>(logits), max); });
}

void CudaKernels::logit_sums(const Logits& l, const void* logits, const float* max, const std::int32_t* target, float* sums) {
    with_type(l.t, [&]<class T>(T) { launch(row_sums<T>, grid_of(l), stream_, l, static_cast<const T*>(logits), max, target, sums); });
}

void CudaKernels::logit_sums_dx(const Logits& l, const void* logits, const float* max, const std::int32_t* target, const float* dsums,
                                void* dlogits) {
    const bool alike = (reinterpret_cast<std::uintptr_t>(logits) - reinterpret_cast<std::uintptr_t>(dlogits)) % pack_bytes == 0;
    with_type(l.t, [&]<class T>(T) {
        launch(row_gradient<T>, grid_of(l), stream_, l, static_cast<const T*>(logits), max, target, dsums, static_cast<T*>(dlogits), alike);
    });
}

void CudaKernels::token_loss(std::int64_t tokens, const float* sums, const std::uint8_t* mask, double* loss, bool accumulate) {
    launch(sum_of_losses, Grid{1, loss_threads}, stream_, tokens, sums, mask, loss, accumulate);
}

void CudaKernels::token_loss_dx(std::int64_t tokens, const float* sums, const std::uint8_t* mask, const double* dloss, float* dsums) {
    launch(loss_gradient, Grid{static_cast<unsigned>((tokens + token_threads - 1) / token_threads), token_threads}, stream_, tokens, sums, mask,
           dloss, dsums);
}

}  // namespace quadrille
