// Sums over rows, column by column, several at once, in an order that sizes alone decide: a thread adds every eighth row of its block's group of
// rows, the block its threads' sums, and a second kernel the groups' sums, every 32nd and then those, all in f32. Operands are read once; sums of groups are
// written and read in the workspace, at most an eighth of the bytes of a 16-bit operand.
#pragma once
#include "cuda/launch.cuh"
#include "cuda/map_shape.hpp"
#include "cuda/pack.cuh"
#include "cuda/typed.cuh"

namespace quadrille::cuda {

// term(row, column, sum) adds the row's terms of columns column .. column + n to sum[outs][n]. blockIdx.y counts groups from `first` on; partial is
// [groups, outs, cols].
template <int outs, int n, class Term>
__global__ void __launch_bounds__(tile_columns* tile_rows) sum_rows(const Term term, const RowGroups in, std::int64_t first_group,
                                                                    float* partial) {
    __shared__ float part[tile_rows][outs][tile_columns * n];
    const std::int64_t column = (std::int64_t{blockIdx.x} * tile_columns + threadIdx.x) * n, group = first_group + blockIdx.y;
    const std::int64_t begin = group * in.size, end = begin + in.size < in.rows ? begin + in.size : in.rows;
    float sum[outs][n] = {};
    if (column < in.cols) {
#pragma unroll 4
        for (std::int64_t r = begin + threadIdx.y; r < end; r += tile_rows) term(r, column, sum);
    }
    for (int o = 0; o < outs; ++o)
        for (int i = 0; i < n; ++i) part[threadIdx.y][o][threadIdx.x * n + i] = sum[o][i];
    __syncthreads();
    const int me = static_cast<int>(threadIdx.y * tile_columns + threadIdx.x);
    const std::int64_t first = std::int64_t{blockIdx.x} * tile_columns * n;
    for (int at = me; at < outs * tile_columns * n; at += tile_columns * tile_rows) {
        const int o = at / (tile_columns * n), c = at % (tile_columns * n);
        float total = 0.0f;
        for (int y = 0; y < tile_rows; ++y) total += part[y][o][c];
        if (first + c < in.cols) partial[(group * outs + o) * in.cols + first + c] = total;
    }
}

// Where the sums go: `to`[o] (may be null: not wanted) of `type`, [cols].
template <int outs>
struct ColumnSums {
    void* to[outs];
    DType type;
    bool accumulate;
};

constexpr int group_rows = 32;  // groups that a block of add_groups adds beside each other

// blockIdx.y is the sum.
template <int outs>
__global__ void __launch_bounds__(tile_columns* group_rows) add_groups(const float* partial, std::int64_t groups, std::int64_t cols,
                                                                       const ColumnSums<outs> sums) {
    __shared__ float part[group_rows][tile_columns + 1];
    void* const to = blockIdx.y == 0 ? sums.to[0] : sums.to[outs - 1];
    const std::int64_t column = std::int64_t{blockIdx.x} * tile_columns + threadIdx.x;
    float sum = 0.0f;
    if (column < cols) {
#pragma unroll 4
        for (std::int64_t g = threadIdx.y; g < groups; g += group_rows) sum += partial[(g * outs + blockIdx.y) * cols + column];
    }
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || column >= cols || !to) return;
    float total = 0.0f;
    for (int y = 0; y < group_rows; ++y) total += part[y][threadIdx.x];
    store_as(to, sums.type, column, sums.accumulate ? load_as(to, sums.type, column) + total : total);
}

// Bytes of the groups' sums.
constexpr std::int64_t group_sums_bytes(int outs, std::int64_t rows, std::int64_t cols) {
    return outs * sum_groups(rows, cols) * cols * static_cast<std::int64_t>(sizeof(float));
}

// The sums of so many groups from `first` on.
template <int outs, int n, class Term>
void sum_groups_of(cudaStream_t stream, const Term& term, const RowGroups& in, std::int64_t first, std::int64_t groups, float* partial) {
    const dim3 blocks(static_cast<unsigned>(ceil_div(in.cols, std::int64_t{tile_columns} * n)), static_cast<unsigned>(groups));
    launch(sum_rows<outs, n, Term>, Grid{blocks, dim3(tile_columns, tile_rows)}, stream, term, in, first, partial);
}

template <int outs>
void add_all_groups(cudaStream_t stream, const RowGroups& in, const float* partial, const ColumnSums<outs>& sums) {
    static_assert(outs <= 2);
    const auto blocks = static_cast<unsigned>(ceil_div(in.cols, tile_columns));
    launch(add_groups<outs>, Grid{dim3(blocks, outs), dim3(tile_columns, group_rows)}, stream, partial, in.groups, in.cols, sums);
}

}  // namespace quadrille::cuda
