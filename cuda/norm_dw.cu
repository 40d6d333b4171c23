// Gradients of a norm's gain and bias: sums over rows of dy xhat and dy. The statistics of rows come first, then the sums, by slabs of rows of
// which x stays in the L2 cache between the two; so memory gives x and dy once, 8 bytes an element in f32 and 4 in 16 bits, the least there is, and
// the statistics and the groups' sums beside (cuda/column_sums.cuh).
#include "cuda/column_sums.cuh"
#include "cuda/kernels.hpp"
#include "cuda/norm_rows.cuh"
#include "cuda/with_type.hpp"

namespace quadrille {

using namespace cuda;

namespace {

constexpr std::int64_t slab_bytes = std::int64_t{16} << 20;  // of x; an A100 has 40 MB of L2, an H100 50

// Rows first .. norm.rows.
template <class Row, class T>
__global__ void __launch_bounds__(most_row_threads, 1) row_statistics(const Norm norm, const T* x, Statistics* to) {
    __shared__ float warps[2][most_warps];
    const std::int64_t at = row_at(norm);
    if (at < 0) return;
    const Statistics s = statistics(norm, Row(x + at, norm.h), warps);
    if (threadIdx.x == 0) to[at / norm.h] = s;
}

template <class T, int n>
struct Slopes {
    const T *x, *dy;
    const Statistics* statistics;
    std::int64_t h;
    __device__ __forceinline__ void operator()(std::int64_t row, std::int64_t column, float (&sum)[2][n]) const {
        const auto u = load_values<n>(x + row * h + column), d = load_values<n>(dy + row * h + column);
        const Statistics s = statistics[row];
#pragma unroll
        for (int i = 0; i < n; ++i) {
            sum[0][i] += d.x[i] * ((u.x[i] - s.mean) * s.rstd);
            sum[1][i] += d.x[i];
        }
    }
};

// Statistics of all rows, and sums of all groups, slab by slab.
template <class T, int n>
void sum_slabs(cudaStream_t stream, const Norm& norm, const T* x, const T* dy, Statistics* stats, const RowGroups& in, float* partial) {
    const std::int64_t group_bytes = in.size * norm.h * static_cast<std::int64_t>(sizeof(T));
    const std::int64_t at_once = std::max<std::int64_t>(slab_bytes / std::max<std::int64_t>(group_bytes, 1), 1);
    for (std::int64_t first = 0; first < in.groups; first += at_once) {
        const std::int64_t groups = std::min(at_once, in.groups - first), row = first * in.size;
        Norm slab = norm;
        slab.rows = std::min(norm.rows - row, groups * in.size);
        const T* const px = x + row * norm.h;
        with_rows<T>(
            slab, [&]<class Row>(const Grid& grid) { launch(row_statistics<Row, T>, grid, stream, slab, px, stats + row); }, px);
        sum_groups_of<2, n>(stream, Slopes<T, n>{x, dy, stats, norm.h}, in, first, groups, partial);
    }
}

std::int64_t statistics_bytes(const Norm& n) { return aligned_up(n.rows * static_cast<std::int64_t>(sizeof(Statistics)), pack_bytes); }

}  // namespace

std::int64_t CudaKernels::norm_dw_workspace(const Norm& n) const { return statistics_bytes(n) + group_sums_bytes(2, n.rows, n.h); }

void CudaKernels::norm_dw(const Norm& n, const void* x, const void* dy, void* dgain, void* dbias, DType out_type, bool accumulate, void* workspace) {
    auto* const stats = static_cast<Statistics*>(workspace);
    auto* const partial = reinterpret_cast<float*>(static_cast<std::byte*>(workspace) + statistics_bytes(n));
    const RowGroups in = row_groups(n.rows, n.h);
    with_type(n.t, [&]<class T>(T) {
        const T *const px = of<T>(x), *const pd = of<T>(dy);
        if (packable(px, pd) && n.h % pack_size<T> == 0)
            sum_slabs<T, pack_size<T>>(stream_, n, px, pd, stats, in, partial);
        else
            sum_slabs<T, 1>(stream_, n, px, pd, stats, in, partial);
    });
    add_all_groups(stream_, in, partial, ColumnSums<2>{{dgain, dbias}, out_type, accumulate});
}

}  // namespace quadrille
