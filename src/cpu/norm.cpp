// LayerNorm and RMSNorm: a row at a time forward and for dx; dgain and dbias are sums over rows.
#include "cpu/column_sum.hpp"
#include "cpu/kernels.hpp"
#include <cmath>

namespace quadrille {

namespace {

struct Statistics {
    float mean = 0.0f, rstd = 0.0f;
};

// Two passes, so that a large mean does not cancel the variance. rmsnorm has mean 0.
template <class T>
Statistics statistics(const Norm& n, const T* x) {
    const float h = static_cast<float>(n.h);
    float mean = 0.0f, squares = 0.0f;
    if (!n.rms) {
#pragma omp simd reduction(+ : mean)
        for (std::int64_t c = 0; c < n.h; ++c) mean += load(x[c]);
        mean /= h;
    }
#pragma omp simd reduction(+ : squares)
    for (std::int64_t c = 0; c < n.h; ++c) squares += (load(x[c]) - mean) * (load(x[c]) - mean);
    return {mean, 1.0f / std::sqrt(squares / h + n.eps)};
}

template <class T>
void norm_row(const Norm& n, const T* x, const T* gain, const T* bias, T* y) {
    const Statistics row = statistics(n, x);  // no structured binding: OpenMP cannot capture one
    const float mean = row.mean, rstd = row.rstd;
    if (bias) {
#pragma omp simd
        for (std::int64_t c = 0; c < n.h; ++c) store(y[c], (load(x[c]) - mean) * rstd * load(gain[c]) + load(bias[c]));
    } else {
#pragma omp simd
        for (std::int64_t c = 0; c < n.h; ++c) store(y[c], (load(x[c]) - mean) * rstd * load(gain[c]));
    }
}

// With w = gain dy and xhat = (x - mean) rstd:  dx = rstd (w - mean(w) - xhat mean(w xhat)); rmsnorm lacks mean(w).
template <class T>
void norm_dx_row(const Norm& n, const T* x, const T* gain, const T* dy, T* dx) {
    const Statistics row = statistics(n, x);
    const float mean = row.mean, rstd = row.rstd;
    float sum_w = 0.0f, sum_wx = 0.0f;
#pragma omp simd reduction(+ : sum_w, sum_wx)
    for (std::int64_t c = 0; c < n.h; ++c) {
        const float w = load(gain[c]) * load(dy[c]);
        sum_w += w;
        sum_wx += w * ((load(x[c]) - mean) * rstd);
    }
    const float mean_w = n.rms ? 0.0f : sum_w / static_cast<float>(n.h);
    const float mean_wx = sum_wx / static_cast<float>(n.h);
#pragma omp simd
    for (std::int64_t c = 0; c < n.h; ++c) {
        const float xhat = (load(x[c]) - mean) * rstd;
        store(dx[c], rstd * (load(gain[c]) * load(dy[c]) - mean_w - xhat * mean_wx));
    }
}

template <class F>
void each_row(const Norm& n, F f) {
#pragma omp parallel for schedule(static) if (n.rows * n.h >= parallel_grain)
    for (std::int64_t r = 0; r < n.rows; ++r) f(r * n.h);
}

}  // namespace

void CpuKernels::norm(const Norm& n, const void* x, const void* gain, const void* bias, void* y) {
    with_type(n.t, [&]<class T>(T) {
        const T* px = static_cast<const T*>(x);
        const T* pg = static_cast<const T*>(gain);
        const T* pb = static_cast<const T*>(bias);
        T* py = static_cast<T*>(y);
        each_row(n, [=](std::int64_t row) { norm_row(n, px + row, pg, pb, py + row); });
    });
}

void CpuKernels::residual_norm(const Norm& n, const void* x, const void* r, const void* gain, const void* bias, void* sum, void* y) {
    with_type(n.t, [&]<class T>(T) {
        const T* px = static_cast<const T*>(x);
        const T* pr = static_cast<const T*>(r);
        const T* pg = static_cast<const T*>(gain);
        const T* pb = static_cast<const T*>(bias);
        T* ps = static_cast<T*>(sum);
        T* py = static_cast<T*>(y);
        each_row(n, [=](std::int64_t row) {
#pragma omp simd
            for (std::int64_t c = row; c < row + n.h; ++c) store(ps[c], load(px[c]) + load(pr[c]));
            norm_row(n, ps + row, pg, pb, py + row);
        });
    });
}

void CpuKernels::norm_dx(const Norm& n, const void* x, const void* gain, const void* dy, void* dx) {
    with_type(n.t, [&]<class T>(T) {
        const T* px = static_cast<const T*>(x);
        const T* pg = static_cast<const T*>(gain);
        const T* pdy = static_cast<const T*>(dy);
        T* pdx = static_cast<T*>(dx);
        each_row(n, [=](std::int64_t row) { norm_dx_row(n, px + row, pg, pdy + row, pdx + row); });
    });
}

std::int64_t CpuKernels::norm_dw_workspace(const Norm& n) const { return n.rows * static_cast<std::int64_t>(sizeof(Statistics)); }

void CpuKernels::norm_dw(const Norm& n, const void* x, const void* dy, void* dgain, void* dbias, DType out_type, bool accumulate, void* workspace) {
    with_type(n.t, [&]<class T>(T) {
        const T* px = static_cast<const T*>(x);
        const T* pdy = static_cast<const T*>(dy);
        auto* const stats = static_cast<Statistics*>(workspace);
        each_row(n, [=](std::int64_t row) { stats[row / n.h] = statistics(n, px + row); });
        sum_over_rows<2>(
            n.rows, n.h,
            [=](std::int64_t r, std::int64_t first, std::int64_t width, float(*out)[sum_columns]) {
                const T* xr = px + r * n.h + first;
                const T* dyr = pdy + r * n.h + first;
                const float mean = stats[r].mean, rstd = stats[r].rstd;  // clang cannot capture a structured binding
#pragma omp simd
                for (std::int64_t c = 0; c < width; ++c) {
                    out[0][c] += load(dyr[c]) * ((load(xr[c]) - mean) * rstd);
                    out[1][c] += load(dyr[c]);
                }
            },
            [=](std::int64_t first, std::int64_t width, const float(*total)[sum_columns]) {
                store_sum(dgain, out_type, first, width, total[0], accumulate);
                if (dbias) store_sum(dbias, out_type, first, width, total[1], accumulate);
            });
    });
}

}  // namespace quadrille
