// Updates are one expression per element.
#include "cpu/element.hpp"
#include "cpu/kernels.hpp"
#include <cmath>

namespace quadrille {

namespace {

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

void adamw_slice(const ParameterSlice& s, const AdamW& a, double factor) {
    const float lr = static_cast<float>(a.lr), eps = static_cast<float>(a.eps), decay = static_cast<float>(s.decays ? a.weight_decay : 0.0);
    const float beta1 = static_cast<float>(a.beta1), beta2 = static_cast<float>(a.beta2), scale = static_cast<float>(factor);
    const float rest1 = static_cast<float>(1.0 - a.beta1), rest2 = static_cast<float>(1.0 - a.beta2);
    const float unbias1 = static_cast<float>(1.0 / a.correction1), unbias2 = static_cast<float>(1.0 / a.correction2);
    const float* const master = s.master;
    float *const m = s.m, *const v = s.v;
    update_slice(s, [=](std::int64_t i, float gradient) {
        const float g = scale * gradient;
        m[i] = beta1 * m[i] + rest1 * g;
        v[i] = beta2 * v[i] + rest2 * g * g;
        const float step = m[i] * unbias1 / (std::sqrt(v[i] * unbias2) + eps);
        return master[i] - lr * (step + decay * master[i]);
    });
}

void sgd_slice(const ParameterSlice& s, const Sgd& a, double factor) {
    const float lr = static_cast<float>(a.lr), decay = static_cast<float>(s.decays ? a.weight_decay : 0.0), scale = static_cast<float>(factor);
    const float* const master = s.master;
    update_slice(s, [=](std::int64_t i, float gradient) { return master[i] - lr * (scale * gradient + decay * master[i]); });
}

}  // namespace

void CpuKernels::adamw(std::span<const ParameterSlice> slices, const AdamW& a, const Clip& clip) {
    if (!std::isfinite(*clip.norm2)) return;
    const double factor = clip.grad_scale * clip_factor(*clip.norm2, clip.clip);
    for (const ParameterSlice& s : slices) adamw_slice(s, a, factor);
}

void CpuKernels::sgd(std::span<const ParameterSlice> slices, const Sgd& a, const Clip& clip) {
    if (!std::isfinite(*clip.norm2)) return;
    const double factor = clip.grad_scale * clip_factor(*clip.norm2, clip.clip);
    for (const ParameterSlice& s : slices) sgd_slice(s, a, factor);
}

}  // namespace quadrille
