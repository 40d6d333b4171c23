// What is left of bias and gelu where cuBLASLt does not take them: one pass over C, four elements at a time where rows begin at multiples of them.
#include "cuda/launch.cuh"
#include "cuda/products.hpp"
#include "cuda/typed.cuh"

#include <algorithm>

namespace quadrille::cuda {
namespace {

constexpr unsigned finish_threads = 128;
constexpr std::int64_t most_rows = 65535;  // of blocks; the rest by turns

struct Finish {
    std::int64_t m, n, ldc;
    void *c, *y;
    const void* bias;
    DType c_type, bias_type;
    bool from_nothing, fours;
};

__device__ __forceinline__ void finish_four(const Finish& f, std::int64_t at, std::int64_t column) {
    float c[4] = {}, b[4] = {};
    if (!f.from_nothing) load_four_as(f.c, f.c_type, at, c);
    if (f.bias)
        for (int i = 0; i < 4; ++i) b[i] = load_as(f.bias, f.bias_type, column + i);
    if (f.bias || f.from_nothing) {
        for (int i = 0; i < 4; ++i) c[i] += b[i];
        store_four_as(f.c, f.c_type, at, c);
    }
    if (!f.y) return;
    load_four_as(f.c, f.c_type, at, c);  // as it was rounded
    for (int i = 0; i < 4; ++i) c[i] = gelu32(c[i]);
    store_four_as(f.y, f.c_type, at, c);
}

__device__ __forceinline__ void finish_one(const Finish& f, std::int64_t at, std::int64_t column) {
    if (f.bias || f.from_nothing) {
        const float c = f.from_nothing ? 0.0f : load_as(f.c, f.c_type, at);
        store_as(f.c, f.c_type, at, f.bias ? c + load_as(f.bias, f.bias_type, column) : c);
    }
    if (f.y) store_as(f.y, f.c_type, at, gelu32(load_as(f.c, f.c_type, at)));
}

__global__ void __launch_bounds__(finish_threads) finish_rows(const Finish f) {
    const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * finish_threads + threadIdx.x;
    for (std::int64_t row = blockIdx.y; row < f.m; row += gridDim.y) {
        if (!f.fours) {
            if (thread < f.n) finish_one(f, row * f.ldc + thread, thread);
            continue;
        }
        const std::int64_t column = 4 * thread;
        if (column + 4 <= f.n) finish_four(f, row * f.ldc + column, column);
        else
            for (std::int64_t c = column; c < f.n; ++c) finish_one(f, row * f.ldc + c, c);
    }
}

}  // namespace

void finish_product(const Gemm& g, const void* bias, void* y, bool from_nothing, cudaStream_t stream) {
    const bool fours = g.ldc % 4 == 0 && behind_four(g.c, g.c_type) == 0 && (!y || behind_four(y, g.c_type) == 0);
    const std::int64_t accesses = fours ? (g.n + 3) / 4 : g.n;
    const dim3 blocks(static_cast<unsigned>((accesses + finish_threads - 1) / finish_threads), static_cast<unsigned>(std::min(g.m, most_rows)));
    launch(finish_rows, Grid{blocks, finish_threads}, stream,
           Finish{g.m, g.n, g.ldc, g.c, y, bias, g.c_type, g.bias_type, from_nothing, fours});
}

}  // namespace quadrille::cuda
