// LayerNorm and RMSNorm forward, alone and after a residual sum, and the gradient of their operand: kernels of a warp or a block for each row,
// which hold it in registers (cuda/norm_rows.cuh) and go through it as often as the two-pass statistics want. Bytes an element moved, the least
// there is, in f32 and 16 bits: norm 8 and 4, residual_norm 16 and 8, norm_dx 12 and 6; gain and bias come from caches. A thread has up to four
// 16-byte loads of each operand in flight.
#include "cuda/kernels.hpp"
#include "cuda/norm_rows.cuh"
#include "cuda/with_type.hpp"

namespace quadrille {

using namespace cuda;

namespace {

template <class Row>
__device__ __forceinline__ void write_normed(const Row& row, const Statistics& s, const typename Row::Element* gain,
                                             const typename Row::Element* bias, typename Row::Element* y) {
    constexpr int n = Row::n;
    row.each([&](std::int64_t c, Values<n> x) {
        const auto g = load_values<n>(gain + c);
#pragma unroll
        for (int i = 0; i < n; ++i) x.x[i] = (x.x[i] - s.mean) * s.rstd * g.x[i];
        if (bias) {
            const auto b = load_values<n>(bias + c);
#pragma unroll
            for (int i = 0; i < n; ++i) x.x[i] += b.x[i];
        }
        store_values(y + c, x);
    });
}

template <class Row, class T>
__global__ void __launch_bounds__(most_row_threads, 1) norm_rows(const Norm norm, const T* x, const T* gain, const T* bias, T* y) {
    __shared__ float warps[2][most_warps];
    const std::int64_t at = row_at(norm);
    if (at < 0) return;
    const Row row(x + at, norm.h);
    write_normed(row, statistics(norm, row, warps), gain, bias, y + at);
}

template <class Row, class T>
__global__ void __launch_bounds__(most_row_threads, 1) residual_norm_rows(const Norm norm, const T* x, const T* r, const T* gain, const T* bias,
                                                                        T* sum, T* y) {
    __shared__ float warps[2][most_warps];
    const std::int64_t at = row_at(norm);
    if (at < 0) return;
    const Row row(x + at, r + at, sum + at, norm.h);
    write_normed(row, statistics(norm, row, warps), gain, bias, y + at);
}

// With w = gain dy and xhat = (x - mean) rstd:  dx = rstd (w - mean(w) - xhat mean(w xhat)); rmsnorm lacks mean(w).
template <class Row, class T>
__global__ void __launch_bounds__(most_row_threads, 1) norm_dx_rows(const Norm norm, const T* x, const T* gain, const T* dy, T* dx) {
    constexpr int n = Row::n;
    __shared__ float warps[2][most_warps], warps_w[most_warps], warps_wx[most_warps];
    const std::int64_t at = row_at(norm);
    if (at < 0) return;
    const Row row(x + at, norm.h), slope(dy + at, norm.h);
    const Statistics s = statistics(norm, row, warps);
    float sum_w = 0.0f, sum_wx = 0.0f;
    row.each(slope, [&](std::int64_t c, const Values<n>& u, const Values<n>& d) {
        const auto g = load_values<n>(gain + c);
#pragma unroll
        for (int i = 0; i < n; ++i) {
            const float w = g.x[i] * d.x[i];
            sum_w += w;
            sum_wx += w * ((u.x[i] - s.mean) * s.rstd);
        }
    });
    const auto h = static_cast<float>(norm.h);
    const float mean_w = norm.rms ? 0.0f : row_sum(sum_w, warps_w) / h, mean_wx = row_sum(sum_wx, warps_wx) / h;
    row.each(slope, [&](std::int64_t c, const Values<n>& u, const Values<n>& d) {
        auto out = load_values<n>(gain + c);
#pragma unroll
        for (int i = 0; i < n; ++i) out.x[i] = s.rstd * (out.x[i] * d.x[i] - mean_w - (u.x[i] - s.mean) * s.rstd * mean_wx);
        store_values(dx + at + c, out);
    });
}

}  // namespace

void CudaKernels::norm(const Norm& n, const void* x, const void* gain, const void* bias, void* y) {
    with_type(n.t, [&]<class T>(T) {
        const auto start = [&]<class Row>(const Grid& grid) {
            launch(norm_rows<Row, T>, grid, stream_, n, of<T>(x), of<T>(gain), of<T>(bias), of<T>(y));
        };
        with_rows<T>(n, start, x, gain, bias, y);
    });
}

void CudaKernels::residual_norm(const Norm& n, const void* x, const void* r, const void* gain, const void* bias, void* sum, void* y) {
    with_type(n.t, [&]<class T>(T) {
        const auto start = [&]<class Row>(const Grid& grid) {
            launch(residual_norm_rows<Row, T>, grid, stream_, n, of<T>(x), of<T>(r), of<T>(gain), of<T>(bias), of<T>(sum), of<T>(y));
        };
        with_rows<T>(n, start, x, r, gain, bias, sum, y);
    });
}

void CudaKernels::norm_dx(const Norm& n, const void* x, const void* gain, const void* dy, void* dx) {
    with_type(n.t, [&]<class T>(T) {
        const auto start = [&]<class Row>(const Grid& grid) {
            launch(norm_dx_rows<Row, T>, grid, stream_, n, of<T>(x), of<T>(gain), of<T>(dy), of<T>(dx));
        };
        with_rows<T>(n, start, x, gain, dy, dx);
    });
}

}  // namespace quadrille
