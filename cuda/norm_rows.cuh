// Rows of norms as threads hold them, and sums over a row. A row belongs to the threads threadIdx.x = 0 .. blockDim.x - 1 of its threadIdx.y: to a
// warp, one of several in the block, or to the whole block.
//
// HeldRow keeps its row in registers, so that it is read once however often it is gone through; ReadRow reads it again each time, from a cache, for
// rows too long for registers or not on multiples of 16 bytes. Both give each element to the same thread each time.
#pragma once
#include "cuda/launch.cuh"
#include "cuda/norm_shape.hpp"
#include "cuda/pack.cuh"
#include "cuda/reduce.cuh"
#include "kernels/norm.hpp"

#include <cmath>

namespace quadrille::cuda {

constexpr int held_packs = 4;  // of a thread
constexpr int most_row_threads = 512;

template <class T>
class HeldRow {
  public:
    using Element = T;
    static constexpr int n = pack_size<T>;  // elements at a time

    __device__ __forceinline__ HeldRow(const T* row, std::int64_t h) : h_(h) {
#pragma unroll
        for (int k = 0; k < held_packs; ++k)
            if (column(k) < h_) packs_[k] = load_pack(row + column(k));
    }
    // x + r, rounded and written to `sum`, which may be either.
    __device__ __forceinline__ HeldRow(const T* x, const T* r, T* sum, std::int64_t h) : HeldRow(x, h) {
        const HeldRow other(r, h);
#pragma unroll
        for (int k = 0; k < held_packs; ++k) {
            if (column(k) >= h_) continue;
            auto u = values_of(packs_[k]);
            const auto v = values_of(other.packs_[k]);
#pragma unroll
            for (int i = 0; i < n; ++i) u.x[i] += v.x[i];
            packs_[k] = rounded<T>(u);
            store_pack(sum + column(k), packs_[k]);
        }
    }
    // f(first column, values) for all that this thread holds.
    template <class F>
    __device__ __forceinline__ void each(F f) const {
#pragma unroll
        for (int k = 0; k < held_packs; ++k)
            if (column(k) < h_) f(column(k), values_of(packs_[k]));
    }
    // The same of two rows at once: f(first column, values, the other's values).
    template <class F>
    __device__ __forceinline__ void each(const HeldRow& other, F f) const {
#pragma unroll
        for (int k = 0; k < held_packs; ++k)
            if (column(k) < h_) f(column(k), values_of(packs_[k]), values_of(other.packs_[k]));
    }

  private:
    __device__ __forceinline__ int column(int k) const { return static_cast<int>(k * blockDim.x + threadIdx.x) * n; }

    std::int64_t h_;
    Pack<T> packs_[held_packs];
};

template <class T>
class ReadRow {
  public:
    using Element = T;
    static constexpr int n = 1;

    __device__ __forceinline__ ReadRow(const T* row, std::int64_t h) : row_(row), h_(h) {}
    __device__ __forceinline__ ReadRow(const T* x, const T* r, T* sum, std::int64_t h) : row_(sum), h_(h) {
        for (std::int64_t c = threadIdx.x; c < h_; c += blockDim.x) store(sum[c], load(x[c]) + load(r[c]));
    }
    template <class F>
    __device__ __forceinline__ void each(F f) const {
        for (std::int64_t c = threadIdx.x; c < h_; c += blockDim.x) f(c, Values<1>{load(row_[c])});
    }
    template <class F>
    __device__ __forceinline__ void each(const ReadRow& other, F f) const {
        for (std::int64_t c = threadIdx.x; c < h_; c += blockDim.x) f(c, Values<1>{load(row_[c])}, Values<1>{load(other.row_[c])});
    }

  private:
    const T* row_;
    std::int64_t h_;
};

// The sum over the row's threads, for each of them, in a fixed order. Where the row is a block, `warps` is shared memory for this sum alone.
__device__ __forceinline__ float row_sum(float x, float (&warps)[most_warps]) {
    x = warp_reduce(x, Sum{});
    if (blockDim.x == warp_threads) return x;
    const unsigned lane = threadIdx.x % warp_threads;
    if (lane == 0) warps[threadIdx.x / warp_threads] = x;
    __syncthreads();
    return warp_reduce(lane < blockDim.x / warp_threads ? warps[lane] : 0.0f, Sum{});
}

struct Statistics {
    float mean, rstd;
};

// Two sums, so that a large mean does not cancel the variance. rmsnorm has mean 0.
template <class Row>
__device__ __forceinline__ Statistics statistics(const Norm& norm, const Row& row, float (&warps)[2][most_warps]) {
    const auto h = static_cast<float>(norm.h);
    float mean = 0.0f, squares = 0.0f;
    if (!norm.rms) {
        row.each([&](std::int64_t, const Values<Row::n>& x) {
            for (int i = 0; i < Row::n; ++i) mean += x.x[i];
        });
        mean = row_sum(mean, warps[0]) / h;
    }
    row.each([&](std::int64_t, const Values<Row::n>& x) {
        for (int i = 0; i < Row::n; ++i) squares += (x.x[i] - mean) * (x.x[i] - mean);
    });
    return {mean, 1.0f / std::sqrt(row_sum(squares, warps[1]) / h + norm.eps)};
}

// The first element of this thread's row, or -1 beyond the last row.
__device__ __forceinline__ std::int64_t row_at(const Norm& norm) {
    const std::int64_t row = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
    return row < norm.rows ? row * norm.h : -1;
}

// Calls f(HeldRow or ReadRow, its grid) for rows of T at these addresses, gain and bias among them.
template <class T, class F, class... P>
void with_rows(const Norm& norm, F f, const P*... addresses) {
    const bool all_packable = packable(norm.h * static_cast<std::int64_t>(sizeof(T))) && packable(addresses...);
    const NormShape shape = norm_shape(norm.h, pack_size<T>, all_packable, held_packs, most_row_threads);
    const Grid grid{static_cast<unsigned>(ceil_div(norm.rows, shape.rows)),
                    dim3(static_cast<unsigned>(shape.row_threads), static_cast<unsigned>(shape.rows))};
    require(ceil_div(norm.rows, shape.rows) <= 0x7FFFFFFF, "cuda: a norm has more rows than a grid has blocks");
    if (shape.held)
        f.template operator()<HeldRow<T>>(grid);
    else
        f.template operator()<ReadRow<T>>(grid);
}

}  // namespace quadrille::cuda
