// Updates are one expression per element; the norm's sum has a fixed order.
#include "cpu/optimizer.hpp"
#include "base/random.hpp"
#include "cpu/element.hpp"
#include <algorithm>
#include <cmath>

namespace quadrille {

namespace {

constexpr std::int64_t block_elements = 1024;
constexpr std::int64_t blocks_of(std::int64_t count) { return (count + block_elements - 1) / block_elements; }

template <class T>
double block_squares(const T* g, std::int64_t count) {
    double sum = 0.0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(load(g[i])) * static_cast<double>(load(g[i]));
    return sum;
}

// update(i, g) returns the new master from the unscaled gradient; the weight, if apart, is its rounding.
template <class Update>
void update_slice(const ParameterSlice& s, Update update) {
    with_type(s.gradient_type, [&]<class G>(G) {
        const G* g = static_cast<const G*>(s.gradient);
        float* const master = s.master;
        if (!s.weight) return each_element(s.count, [=](std::int64_t i) { master[i] = update(i, load(g[i])); });
        with_type(s.weight_type, [&]<class W>(W) {
            W* const weight = static_cast<W*>(s.weight);
            each_element(s.count, [=](std::int64_t i) {
                master[i] = update(i, load(g[i]));
                store(weight[i], master[i]);
            });
        });
    });
}

}  // namespace

std::int64_t sum_squares_workspace(std::int64_t count) { return blocks_of(count) * static_cast<std::int64_t>(sizeof(double)); }

double sum_squares(const void* g, DType g_type, std::int64_t count, void* workspace) {
    const std::int64_t blocks = blocks_of(count);
    auto* const sums = static_cast<double*>(workspace);
    with_type(g_type, [&]<class T>(T) {
        const T* p = static_cast<const T*>(g);
#pragma omp parallel for schedule(static) if (count >= parallel_grain)
        for (std::int64_t b = 0; b < blocks; ++b)
            sums[b] = block_squares(p + b * block_elements, std::min(block_elements, count - b * block_elements));
    });
    double total = 0.0;
    for (std::int64_t b = 0; b < blocks; ++b) total += sums[b];
    return total;
}

void adamw(const ParameterSlice& s, float* m, float* v, const AdamW& a) {
    const float lr = static_cast<float>(a.lr), eps = static_cast<float>(a.eps), decay = static_cast<float>(a.weight_decay);
    const float beta1 = static_cast<float>(a.beta1), beta2 = static_cast<float>(a.beta2), scale = static_cast<float>(a.grad_scale);
    const float rest1 = static_cast<float>(1.0 - a.beta1), rest2 = static_cast<float>(1.0 - a.beta2);
    const float unbias1 = static_cast<float>(1.0 / a.correction1), unbias2 = static_cast<float>(1.0 / a.correction2);
    const float* const master = s.master;
    update_slice(s, [=](std::int64_t i, float gradient) {
        const float g = scale * gradient;
        m[i] = beta1 * m[i] + rest1 * g;
        v[i] = beta2 * v[i] + rest2 * g * g;
        const float step = m[i] * unbias1 / (std::sqrt(v[i] * unbias2) + eps);
        return master[i] - lr * (step + decay * master[i]);
    });
}

void sgd(const ParameterSlice& s, const Sgd& a) {
    const float lr = static_cast<float>(a.lr), decay = static_cast<float>(a.weight_decay), scale = static_cast<float>(a.grad_scale);
    const float* const master = s.master;
    update_slice(s, [=](std::int64_t i, float gradient) { return master[i] - lr * (scale * gradient + decay * master[i]); });
}

namespace {

template <class Draw>
void fill(float* dst, std::span<const Run> runs, std::uint64_t key, double scale, Draw draw) {
#pragma omp parallel
    for (const Run& run : runs) {
#pragma omp for schedule(static) nowait
        for (std::int64_t i = 0; i < run.count; ++i) {
            const auto element = static_cast<std::uint64_t>(run.element + i);
            dst[run.offset + i] = static_cast<float>(scale * draw(key, element));
        }
    }
}

}  // namespace

void fill_normal(float* dst, std::span<const Run> runs, std::uint64_t key, double deviation) { fill(dst, runs, key, deviation, random_normal); }
void fill_uniform(float* dst, std::span<const Run> runs, std::uint64_t key, double bound) { fill(dst, runs, key, bound, random_uniform); }

}  // namespace quadrille
