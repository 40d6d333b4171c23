// Elementwise kernels of rows with something for each column: a bias, or the column's place in the global tensor. A thread reads what belongs to
// its columns once, into registers, and then takes rows, so that beside it only the operand and the result are moved: 8 bytes an element in f32, 4
// in 16 bits, the least there is. Dropout draws 64 bits an element, some 30 instructions: in 16 bits it is bound by those about as much as by
// memory.
#include "base/random.hpp"
#include "cuda/kernels.hpp"
#include "cuda/launch.cuh"
#include "cuda/map_shape.hpp"
#include "cuda/pack.cuh"
#include "cuda/with_type.hpp"

namespace quadrille {

using namespace cuda;

namespace {

constexpr std::int64_t rows_a_thread = 8;

// Calls f(row, following row or the same) for this thread's rows, two at a time.
template <class F>
__device__ __forceinline__ void each_two_rows(std::int64_t rows, F f) {
    const std::int64_t step = std::int64_t{gridDim.y} * tile_rows;
    for (std::int64_t r = std::int64_t{blockIdx.y} * tile_rows + threadIdx.y; r < rows; r += 2 * step) f(r, r + step < rows ? r + step : r);
}
// The first of this thread's n columns.
template <int n>
__device__ __forceinline__ std::int64_t first_column() { return (std::int64_t{blockIdx.x} * tile_columns + threadIdx.x) * n; }

template <class T, int n>
__device__ __forceinline__ Values<n> sum(const Chunk<T, n>& x, const Values<n>& b) {
    auto v = values_of(x);
#pragma unroll
    for (int i = 0; i < n; ++i) v.x[i] += b.x[i];
    return v;
}

template <class T, int n>
__global__ void __launch_bounds__(tile_columns* tile_rows) add_bias_rows(const T* x, const T* bias, T* y, std::int64_t rows, std::int64_t cols) {
    const std::int64_t column = first_column<n>();
    if (column >= cols) return;
    const auto b = load_values<n>(bias + column);
    each_two_rows(rows, [&](std::int64_t first, std::int64_t second) {
        const auto u = load_chunk<n>(x + first * cols + column), v = load_chunk<n>(x + second * cols + column);
        store_values(y + first * cols + column, sum(u, b));
        if (second != first) store_values(y + second * cols + column, sum(v, b));
    });
}

// Rows are a sample's positions; samples lie over blockIdx.z.
template <class T, int n>
__global__ void __launch_bounds__(tile_columns* tile_rows) drop_rows(const Dropout d, const T* x, T* y, std::uint32_t threshold, float factor) {
    const std::int64_t column = first_column<n>();
    if (column >= d.h) return;
    std::int64_t channel[n];
    for (int i = 0; i < n; ++i) channel[i] = d.channel_index[column + i];
    for (std::int64_t b = blockIdx.z; b < d.b; b += gridDim.z) {
        const std::int64_t sample = d.sample_index[b] * d.global_s;
        const auto drop = [&](Values<n>& u, std::int64_t s) {
            const std::int64_t first = (sample + d.position[s]) * d.global_h;
#pragma unroll
            for (int i = 0; i < n; ++i) u.x[i] *= keeps(d.key, static_cast<std::uint64_t>(first + channel[i]), threshold) ? factor : 0.0f;
        };
        each_two_rows(d.s, [&](std::int64_t first, std::int64_t second) {
            const std::int64_t at = (b * d.s + first) * d.h + column, other = (b * d.s + second) * d.h + column;
            auto u = load_values<n>(x + at), v = load_values<n>(x + other);
            drop(u, first);
            store_values(y + at, u);
            if (second == first) return;
            drop(v, second);
            store_values(y + other, v);
        });
    }
}

Grid grid_of(std::int64_t rows, std::int64_t chunks, std::int64_t samples = 1) {
    return {dim3(static_cast<unsigned>(ceil_div(chunks, tile_columns)), tile_blocks(rows, rows_a_thread),
                 static_cast<unsigned>(std::min(samples, most_blocks_y))),
            dim3(tile_columns, tile_rows)};
}

// Whether rows of so many elements of T may be read in packs.
template <class T>
bool packable_rows(std::int64_t cols) { return packable(cols * static_cast<std::int64_t>(sizeof(T))); }

}  // namespace

void CudaKernels::add_bias(const void* x, const void* bias, void* y, std::int64_t rows, std::int64_t cols, DType t) {
    with_type(t, [&]<class T>(T) {
        constexpr int n = pack_size<T>;
        const bool packed = packable_rows<T>(cols) && packable(x, bias, y);
        launch(packed ? add_bias_rows<T, n> : add_bias_rows<T, 1>, grid_of(rows, packed ? cols / n : cols), stream_, of<T>(x), of<T>(bias),
               of<T>(y), rows, cols);
    });
}

void CudaKernels::dropout(const Dropout& d, const void* x, void* y) {
    const std::uint32_t threshold = keep_threshold(d.rate);
    const auto factor = static_cast<float>(1.0 / (1.0 - d.rate));
    with_type(d.t, [&]<class T>(T) {
        constexpr int n = pack_size<T>;
        const bool packed = packable_rows<T>(d.h) && packable(x, y);
        launch(packed ? drop_rows<T, n> : drop_rows<T, 1>, grid_of(d.s, packed ? d.h / n : d.h, d.b), stream_, d, of<T>(x), of<T>(y),
               threshold, factor);
    });
}

}  // namespace quadrille
