// Updates are one expression per element.
#include "cpu/element.hpp"
#include "cpu/kernels.hpp"
#include "kernels/updates.hpp"

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

void adamw_slice(const ParameterSlice& s, const AdamWFactors& a, float scale) {
    const float decay = s.decays ? a.weight_decay : 0.0f;
    const float* const master = s.master;
    float *const m = s.m, *const v = s.v;
    update_slice(s, [=](std::int64_t i, float gradient) { return adamw_element(a, decay, scale * gradient, master[i], m[i], v[i]); });
}

void sgd_slice(const ParameterSlice& s, const Sgd& a, float scale) {
    const float lr = static_cast<float>(a.lr), decay = static_cast<float>(s.decays ? a.weight_decay : 0.0);
    const float* const master = s.master;
    update_slice(s, [=](std::int64_t i, float gradient) { return sgd_element(lr, decay, scale * gradient, master[i]); });
}

}  // namespace

void CpuKernels::adamw(std::span<const ParameterSlice> slices, const AdamW& a, const Clip& clip) {
    if (!update_made(*clip.norm2)) return;
    for (const ParameterSlice& s : slices) adamw_slice(s, AdamWFactors(a), gradient_factor(clip));
}

void CpuKernels::sgd(std::span<const ParameterSlice> slices, const Sgd& a, const Clip& clip) {
    if (!update_made(*clip.norm2)) return;
    for (const ParameterSlice& s : slices) sgd_slice(s, a, gradient_factor(clip));
}

}  // namespace quadrille
