// The formulas of what looks into a unit's flat buffer: squares, updates, packets and residuals.
#include "compile_interpreter_kernels.hpp"
#include "ir/table.hpp"

#include <cmath>
#include <stdexcept>

namespace quadrille::test {
namespace {

const Parameter* parameter_of(const KernelCall& c, std::int64_t element) {
    for (const FlatSegment& s : c.program.flats[static_cast<std::size_t>(c.attributes().unit)].segments)
        if (s.offset <= element && element < s.offset + s.count)
            return &c.program.parameters[static_cast<std::size_t>(s.parameter)];
    return nullptr;
}

void sum_squares(KernelCall& c) {
    for (std::size_t i = 0; i < c.in[0].x.size(); ++i) {
        const Parameter* p = parameter_of(c, c.in[0].index[0][i]);
        if (p && c.program.tables->type(p->type).place.cut_axes() == c.attributes().which)
            c.out[0].x[0] += c.in[0].x[i] * c.in[0].x[i];
    }
}

// weights, gradient, norm² [, masters] [, m, v]; outputs without gradient and norm.
void update(KernelCall& c) {
    const Settings& s = c.settings;
    const double norm = std::sqrt(c.in[2].x[0]), clip = c.attributes().clip,
                 factor = clip > 0 && norm > clip ? clip / (norm + 1e-6) : 1.0;
    const std::size_t moments = c.op.kind == Kind::adamw ? 2 : 0, masters = c.in.size() - 3 - moments, stale = c.attributes().stale ? 1 : 0,
                      count = static_cast<std::size_t>(c.step) + 1 - stale;
    for (std::size_t i = 0; i < c.in[0].x.size(); ++i) {
        const Parameter* p = parameter_of(c, c.in[0].index[0][i]);
        const double g = c.in[1].x[i] * factor * std::pow(s.loss_scale, c.attributes().loss_scale);
        const double w = c.in[masters ? 3 : 0].x[i], decay = p && p->decays ? s.weight_decay : 0.0;
        double step = g;
        for (std::size_t k = 0; k < c.out.size(); ++k) c.out[k].x[i] = c.in[k ? k + 2 : 0].x[i];
        if (!p || count == 0) continue;  // the padding is left as it is, and by gradients of no step all is
        if (moments) {
            double& m = c.out[1 + masters].x[i];
            double& v = c.out[2 + masters].x[i];
            m = s.beta1 * m + (1 - s.beta1) * g;
            v = s.beta2 * v + (1 - s.beta2) * g * g;
            step = m / (1 - std::pow(s.beta1, count)) / (std::sqrt(v / (1 - std::pow(s.beta2, count))) + s.eps);
        }
        const double now = w - s.lr * (step + decay * w);
        for (std::size_t k = 0; k <= masters; ++k) c.out[k].x[i] = now;
    }
}

// A packet holds its elements' values, one a byte, where a method has that many: bf16, fp16 and qsgd of 8 bits.
void compress(KernelCall& c) {
    const std::int64_t slices = c.out[0].shape[0], bytes = c.out[0].shape[2], count = std::ssize(c.in[0].x) / slices;
    if (bytes < count) throw std::runtime_error("packets too small for the interpreter");
    const double scale = std::pow(c.settings.loss_scale, c.attributes().loss_scale), left = c.in.size() > 1 ? c.settings.unsent : 0;
    for (std::int64_t i = 0; i < slices * count; ++i) {
        const auto k = static_cast<std::size_t>(i);
        const double x = c.in[0].x[k] + (c.in.size() > 1 ? scale * c.in[1].x[k] : 0);
        c.out[0].x[static_cast<std::size_t>(i / count * bytes + i % count)] = x * (1 - left);
        if (c.in.size() > 1) c.out[1].x[k] = x * left / scale;
    }
}

void decompress(KernelCall& c) {
    const std::int64_t senders = c.in[0].shape[1], bytes = c.in[0].shape[2];
    for (std::int64_t s = 0; s < senders; ++s)
        for (std::size_t i = 0; i < c.out[0].x.size(); ++i) c.out[0].x[i] += c.in[0].x[static_cast<std::size_t>(s * bytes) + i];
}

void retain(KernelCall& c) {
    c.out[0].x = c.in[1].x;
    for (const double x : c.in[1].x) c.out[1].x[0] += x * x;
}

}  // namespace

void flat(KernelCall& c) {
    switch (c.op.kind) {
        case Kind::sum_squares: return sum_squares(c);
        case Kind::compress: return compress(c);
        case Kind::decompress: return decompress(c);
        case Kind::retain: return retain(c);
        default: return update(c);
    }
}

}  // namespace quadrille::test
