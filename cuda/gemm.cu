// What cuBLASLt does not take of bias and gelu: a pass over C before or behind the product, four elements at a time where rows begin at multiples of
// them.
#include "cuda/launch.cuh"
#include "cuda/products.hpp"
#include "cuda/typed.cuh"

#include <algorithm>

namespace quadrille::cuda {
namespace {

constexpr unsigned row_threads = 128;
constexpr std::int64_t most_rows = 65535;  // of blocks; the rest by turns

struct Rows {
    std::int64_t m, n, ldc;
    void* c;
    DType c_type;
    bool fours;
};

// four(place, column) or one(place, column) for all that this thread has.
template <class Four, class One>
__device__ __forceinline__ void each_access(const Rows& r, Four four, One one) {
    const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * row_threads + threadIdx.x, width = r.fours ? 4 : 1, first = width * thread;
    for (std::int64_t row = blockIdx.y; row < r.m; row += gridDim.y) {
        if (r.fours && first + 4 <= r.n) four(row * r.ldc + first, first);
        else
            for (std::int64_t c = first; c < first + width && c < r.n; ++c) one(row * r.ldc + c, c);
    }
}

__global__ void __launch_bounds__(row_threads) fill_rows(const Rows r, const void* bias, DType bias_type) {
    const auto at = [&](std::int64_t column) { return bias ? load_as(bias, bias_type, column) : 0.0f; };
    each_access(
        r,
        [&](std::int64_t place, std::int64_t column) {
            const float x[4] = {at(column), at(column + 1), at(column + 2), at(column + 3)};
            store_four_as(r.c, r.c_type, place, x);
        },
        [&](std::int64_t place, std::int64_t column) { store_as(r.c, r.c_type, place, at(column)); });
}

__global__ void __launch_bounds__(row_threads) gelu_rows(const Rows r, void* y) {
    each_access(
        r,
        [&](std::int64_t place, std::int64_t) {
            float x[4];
            load_four_as(r.c, r.c_type, place, x);
            for (int i = 0; i < 4; ++i) x[i] = gelu32(x[i]);
            store_four_as(y, r.c_type, place, x);
        },
        [&](std::int64_t place, std::int64_t) { store_as(y, r.c_type, place, gelu32(load_as(r.c, r.c_type, place))); });
}

Rows rows_of(const Gemm& g, const void* y) {
    const bool fours = g.ldc % 4 == 0 && behind_four(g.c, g.c_type) == 0 && (!y || behind_four(y, g.c_type) == 0);
    return {g.m, g.n, g.ldc, g.c, g.c_type, fours};
}

Grid grid_of(const Rows& r) {
    const std::int64_t accesses = r.fours ? (r.n + 3) / 4 : r.n;
    return {dim3(static_cast<unsigned>((accesses + row_threads - 1) / row_threads), static_cast<unsigned>(std::min(r.m, most_rows))), row_threads};
}

}  // namespace

void fill_product(const Gemm& g, cudaStream_t stream) {
    const Rows r = rows_of(g, nullptr);
    launch(fill_rows, grid_of(r), stream, r, g.bias, g.bias_type);
}

void gelu_of_product(const Gemm& g, void* y, cudaStream_t stream) {
    const Rows r = rows_of(g, y);
    launch(gelu_rows, grid_of(r), stream, r, y);
}

}  // namespace quadrille::cuda
