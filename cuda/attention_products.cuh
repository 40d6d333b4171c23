// The two products that attention's kernels are made of, by one warp on tiles in shared memory: tensor cores for 16-bit elements, fused multiply-adds
// for f32 (no TF32). Both keep sums as the tensor cores' accumulators lie, so the code above them is one for all types:
//
//   sums[m][n][2h + e] of lane 4 g + t is row 16 m + 8 h + g, column 8 n + 2 t + e.
//
// Rows of scores are 16 m_tiles a warp; a second product takes the scores straight from these registers as its left operand.
#pragma once
#include "cuda/attention_tiles.hpp"
#include "cuda/ptx.cuh"

namespace quadrille::cuda {

template <int m_tiles, int n_tiles>
using Sums = float[m_tiles][n_tiles][4];

template <int m_tiles, int n_tiles>
__device__ __forceinline__ void clear(Sums<m_tiles, n_tiles>& x) {
#pragma unroll
    for (int m = 0; m < m_tiles; ++m)
#pragma unroll
        for (int n = 0; n < n_tiles; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) x[m][n][i] = 0.0f;
}

// sums += a bᵀ: rows of a[.., head] are the warp's, rows of b[8 n_tiles, head] the columns. Channels from d on to the next 16 are zeros; the rest
// is not read.
template <HalfWidth T, int head, int m_tiles, int n_tiles>
__device__ __forceinline__ void add_rows_by_rows(Sums<m_tiles, n_tiles>& sums, const T* a, const T* b, int d) {
    constexpr int row = row_elements(2, head);
    const int lane = static_cast<int>(threadIdx.x % 32);
    const T* const a_lane = a + lane % 16 * row + lane / 16 * 8;
    const T* const b_lane = b + (lane / 16 * 8 + lane % 8) * row + lane / 8 % 2 * 8;
#pragma unroll
    for (int k = 0; k < head; k += 16) {
        if (k >= d) break;
        std::uint32_t a_k[m_tiles][4];
#pragma unroll
        for (int m = 0; m < m_tiles; ++m) load_matrices(a_k[m], a_lane + 16 * m * row + k);
#pragma unroll
        for (int n = 0; n < n_tiles; n += 2) {
            std::uint32_t b_k[4];
            load_matrices(b_k, b_lane + 8 * n * row + k);
#pragma unroll
            for (int m = 0; m < m_tiles; ++m) {
                mma<T>(sums[m][n], a_k[m], b_k[0], b_k[1]);
                mma<T>(sums[m][n + 1], a_k[m], b_k[2], b_k[3]);
            }
        }
    }
}

template <std::same_as<float> T, int head, int m_tiles, int n_tiles>
__device__ __forceinline__ void add_rows_by_rows(Sums<m_tiles, n_tiles>& sums, const T* a, const T* b, int d) {
    constexpr int row = row_elements(4, head);
    const int lane = static_cast<int>(threadIdx.x % 32);
    const T* const a_lane = a + lane / 4 * row;
    const T* const b_lane = b + lane % 4 * 2 * row;
    const auto four = [](const float* at) { return *reinterpret_cast<const float4*>(at); };
    const auto add = [](float& sum, const float4& x, const float4& y) {
        sum = fmaf(x.x, y.x, sum), sum = fmaf(x.y, y.y, sum), sum = fmaf(x.z, y.z, sum), sum = fmaf(x.w, y.w, sum);
    };
#pragma unroll 1
    for (int k = 0; k < d; k += 4) {
        float4 a_k[m_tiles][2];
#pragma unroll
        for (int m = 0; m < m_tiles; ++m) a_k[m][0] = four(a_lane + 16 * m * row + k), a_k[m][1] = four(a_lane + (16 * m + 8) * row + k);
#pragma unroll
        for (int n = 0; n < n_tiles; ++n) {
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const float4 b_k = four(b_lane + (8 * n + e) * row + k);
#pragma unroll
                for (int m = 0; m < m_tiles; ++m) add(sums[m][n][e], a_k[m][0], b_k), add(sums[m][n][2 + e], a_k[m][1], b_k);
            }
        }
    }
}

// sums += p b: p[.., 8 k_tiles] the warp's rows of scores (rounded to T), b[8 k_tiles, head] from its channel 0 on. Of the sums' columns the first
// `channels` are wanted; what the others hold is of no account.
template <HalfWidth T, int head, int m_tiles, int k_tiles, int n_tiles>
__device__ __forceinline__ void add_scores_by_rows(Sums<m_tiles, n_tiles>& sums, const Sums<m_tiles, k_tiles>& p, const T* b, int channels) {
    constexpr int row = row_elements(2, head);
    const int lane = static_cast<int>(threadIdx.x % 32);
    const T* const b_lane = b + lane % 16 * row + lane / 16 * 8;
#pragma unroll
    for (int k = 0; k < k_tiles; k += 2) {
        std::uint32_t p_k[m_tiles][4];
#pragma unroll
        for (int m = 0; m < m_tiles; ++m) {
#pragma unroll
            for (int i = 0; i < 4; ++i) p_k[m][i] = pair<T>(p[m][k + i / 2][i % 2 * 2], p[m][k + i / 2][i % 2 * 2 + 1]);
        }
#pragma unroll
        for (int n = 0; n < n_tiles; n += 2) {
            if (8 * n >= channels) break;
            std::uint32_t b_k[4];
            load_matrices_transposed(b_k, b_lane + 8 * k * row + 8 * n);
#pragma unroll
            for (int m = 0; m < m_tiles; ++m) {
                mma<T>(sums[m][n], p_k[m], b_k[0], b_k[1]);
                mma<T>(sums[m][n + 1], p_k[m], b_k[2], b_k[3]);
            }
        }
    }
}

template <std::same_as<float> T, int head, int m_tiles, int k_tiles, int n_tiles>
__device__ __forceinline__ void add_scores_by_rows(Sums<m_tiles, n_tiles>& sums, const Sums<m_tiles, k_tiles>& p, const T* b, int) {
    constexpr int row = row_elements(4, head);
    const int lane = static_cast<int>(threadIdx.x % 32);
    const T* const b_lane = b + lane % 4 * 2;
#pragma unroll
    for (int k = 0; k < 8 * k_tiles; ++k) {
        float p_k[m_tiles][2];  // column k of both halves, from the lane of the row that holds it
#pragma unroll
        for (int m = 0; m < m_tiles; ++m) {
#pragma unroll
            for (int h = 0; h < 2; ++h) p_k[m][h] = __shfl_sync(0xFFFFFFFFu, p[m][k / 8][2 * h + k % 2], lane / 4 * 4 + k % 8 / 2);
        }
#pragma unroll
        for (int n = 0; n < n_tiles; ++n) {
            const float2 b_k = *reinterpret_cast<const float2*>(b_lane + k * row + 8 * n);
#pragma unroll
            for (int m = 0; m < m_tiles; ++m) {
                sums[m][n][0] = fmaf(p_k[m][0], b_k.x, sums[m][n][0]), sums[m][n][1] = fmaf(p_k[m][0], b_k.y, sums[m][n][1]);
                sums[m][n][2] = fmaf(p_k[m][1], b_k.x, sums[m][n][2]), sums[m][n][3] = fmaf(p_k[m][1], b_k.y, sums[m][n][3]);
            }
        }
    }
}

}  // namespace quadrille::cuda
