// Cross-entropy, a row of logits at a time. Sums of a row go over fixed blocks of 1024 columns, added in float64, in order.
#include "cpu/element.hpp"
#include "cpu/kernels.hpp"
#include <algorithm>
#include <cmath>
#include <limits>

namespace quadrille {

namespace {

constexpr std::int64_t block_columns = 1024;

template <class T>
float row_max(const T* row, std::int64_t columns) {
    float best = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : best)
    for (std::int64_t c = 0; c < columns; ++c) best = std::max(best, load(row[c]));
    return best;
}

// A NaN logit makes the sum NaN, so the loss shows it, although row_max may have passed over it.
template <class T>
float row_exp_sum(const T* row, std::int64_t columns, float max) {
    double total = 0.0;
    for (std::int64_t first = 0; first < columns; first += block_columns) {
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t c = first; c < std::min(columns, first + block_columns); ++c) sum += exp32(load(row[c]) - max);
        total += sum;
    }
    return static_cast<float>(total);
}

template <class F>
void each_token(const Logits& l, F f) {
#pragma omp parallel for schedule(static) if (l.tokens * l.columns >= parallel_grain)
    for (std::int64_t i = 0; i < l.tokens; ++i) f(i);
}

// The target's column in this rank's block, or -1.
std::int64_t local_target(const Logits& l, std::int32_t target) {
    const std::int64_t column = target - l.first_column;
    return column >= 0 && column < l.real_columns ? column : -1;
}

}  // namespace

void CpuKernels::logit_max(const Logits& l, const void* logits, float* max) {
    with_type(l.t, [&]<class T>(T) {
        const T* p = static_cast<const T*>(logits);
        each_token(l, [=](std::int64_t i) { max[i] = row_max(p + i * l.columns, l.real_columns); });
    });
}

void CpuKernels::logit_sums(const Logits& l, const void* logits, const float* max, const std::int32_t* target, float* sums) {
    with_type(l.t, [&]<class T>(T) {
        const T* p = static_cast<const T*>(logits);
        each_token(l, [=](std::int64_t i) {
            const T* row = p + i * l.columns;
            sums[i] = row_exp_sum(row, l.real_columns, max[i]);
            const std::int64_t column = local_target(l, target[i]);
            sums[l.tokens + i] = column < 0 ? 0.0f : load(row[column]) - max[i];
        });
    });
}

void CpuKernels::token_loss(std::int64_t tokens, const float* sums, const std::uint8_t* mask, double* loss, bool accumulate) {
    double sum = 0.0;
    for (std::int64_t i = 0; i < tokens; ++i)
        if (mask[i]) sum += std::log(static_cast<double>(sums[i])) - static_cast<double>(sums[tokens + i]);
    *loss = sum + (accumulate ? *loss : 0.0);
}

void CpuKernels::token_loss_dx(std::int64_t tokens, const float* sums, const std::uint8_t* mask, const double* dloss, float* dsums) {
    for (std::int64_t i = 0; i < tokens; ++i) {
        dsums[i] = mask[i] ? static_cast<float>(*dloss / static_cast<double>(sums[i])) : 0.0f;
        dsums[tokens + i] = mask[i] ? static_cast<float>(-*dloss) : 0.0f;
    }
}

void CpuKernels::logit_sums_dx(const Logits& l, const void* logits, const float* max, const std::int32_t* target, const float* dsums,
                   void* dlogits) {
    with_type(l.t, [&]<class T>(T) {
        const T* p = static_cast<const T*>(logits);
        T* pd = static_cast<T*>(dlogits);
        each_token(l, [=](std::int64_t i) {
            const T* row = p + i * l.columns;
            T* d = pd + i * l.columns;
            const float dsum = dsums[i], dtarget = dsums[l.tokens + i], top = max[i];
            // An uncounted token: exp(inf - inf) times 0 would be NaN.
            const std::int64_t written = dsum == 0.0f && dtarget == 0.0f ? 0 : l.real_columns;
            const std::int64_t column = written ? local_target(l, target[i]) : -1;
            const float before = column < 0 ? 0.0f : load(row[column]);
#pragma omp simd
            for (std::int64_t c = 0; c < written; ++c) store(d[c], dsum * exp32(load(row[c]) - top));
            if (column >= 0) store(d[column], dsum * exp32(before - top) + dtarget);
            std::fill(d + written, d + l.columns, T{});
        });
    });
}

}  // namespace quadrille
