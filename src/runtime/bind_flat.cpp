// What looks into a unit's flat buffer: the gradient's norm, the update, the padding. A rank works on its own slice of the
// buffer, segment by segment; bytes behind the last segment are left as they are by all but join.
#include "base/error.hpp"
#include "cpu/elementwise.hpp"
#include "cpu/optimizer.hpp"
#include "runtime/bindings.hpp"

#include <algorithm>
#include <cmath>

namespace quadrille {
namespace {

// Elements [begin, end) of this rank's slice, that is of the buffer that begins at flat element `first`.
struct Stretch { std::int64_t begin = 0, end = 0; bool decays = false; };

// The segments of the unit that `wanted` picks, cut to this rank's slice of `t`; neighbours that are treated alike are joined.
template <class Wanted>
std::vector<Stretch> stretches(const Call& c, const TensorType& t, Wanted wanted) {
    const std::int64_t first = first_index(c.program.grid(), t, 0, c.at), count = local_count(c.program.grid(), t);
    std::vector<Stretch> out;
    for (const FlatSegment& s : c.program.flats[static_cast<std::size_t>(c.attributes().unit)].segments) {
        const Parameter& p = c.program.parameters[static_cast<std::size_t>(s.parameter)];
        const std::int64_t begin = std::max<std::int64_t>(s.offset - first, 0), end = std::min(s.offset + s.count - first, count);
        if (begin >= end || !wanted(p)) continue;
        if (!out.empty() && out.back().end == begin && out.back().decays == p.decays) out.back().end = end;
        else out.push_back({begin, end, p.decays});
    }
    return out;
}

// Squares are summed in fixed blocks of the flat buffer, in order: the same bits for a slice, wherever it lies.
Kernel bind_sum_squares(const Call& c) {
    const AxisSet which = c.attributes().which;
    const Tables& tables = *c.program.tables;
    const auto picked = stretches(c, c.in_tensor(0), [&](const Parameter& p) {
        return (tables.type(p.type).place.cut_axes() & tensor_axes) == which;
    });
    const auto type = c.in_tensor(0).dtype;
    return [=, g = c.in[0], out = reinterpret_cast<double*>(c.out[0]), workspace = c.workspace](const StepInputs&) {
        double sum = 0.0;
        for (const Stretch& s : picked) {
            const std::int64_t border = std::min(s.end, (s.begin + flat_block - 1) / flat_block * flat_block);
            if (border > s.begin) sum += sum_squares(g + s.begin * bytes_of(type), type, border - s.begin, workspace);
            if (s.end > border) sum += sum_squares(g + border * bytes_of(type), type, s.end - border, workspace);
        }
        *out = sum;
    };
}

// weights, gradient, norm² [, fp32 masters] [, m, v]: all but gradient and norm are rewritten in place.
struct UpdatePlan {
    std::vector<ParameterSlice> slices;
    std::vector<std::int64_t> offsets;
    std::vector<bool> decays;
    float *m = nullptr, *v = nullptr;
    const double* norm2 = nullptr;
    double clip = 0;
    int loss_scale = 0;  // the power of it that the gradient is multiplied by
    bool stale = false;

    bool made(const StepInputs& step) const { return counts(*norm2, stale, step); }
    double gradient_factor(const StepInputs& step) const { return scaled(clip_factor(*norm2, clip), step, loss_scale); }
};

UpdatePlan update_plan(const Call& c) {
    const std::size_t moments = c.op.kind == Kind::adamw ? 2 : 0;
    const bool masters = c.in_tensor(0).dtype != DType::f32;
    const std::size_t state = 3 + (masters ? 1 : 0);
    require(c.in.size() == state + moments && c.out.size() + 2 == c.in.size(),
            "runtime: an update has other operands than its kind and precision need");
    require(c.in[0] == c.out[0] && std::equal(c.out.begin() + 1, c.out.end(), c.in.begin() + 3), "runtime: an update does not share its storage");
    UpdatePlan u;
    const auto type = c.in_tensor(1).dtype;
    for (const Stretch& s : stretches(c, c.in_tensor(0), [](const Parameter&) { return true; })) {
        ParameterSlice slice;
        slice.count = s.end - s.begin;
        slice.master = reinterpret_cast<float*>(masters ? c.in[3] : c.in[0]) + s.begin;
        slice.gradient = c.in[1] + s.begin * bytes_of(type);
        slice.gradient_type = type;
        slice.weight = masters ? c.in[0] + s.begin * bytes_of(c.in_tensor(0).dtype) : nullptr;
        slice.weight_type = c.in_tensor(0).dtype;
        u.slices.push_back(slice);
        u.offsets.push_back(s.begin);
        u.decays.push_back(s.decays);
    }
    if (moments) {
        u.m = reinterpret_cast<float*>(c.in[state]);
        u.v = reinterpret_cast<float*>(c.in[state + 1]);
    }
    u.norm2 = reinterpret_cast<const double*>(c.in[2]);
    u.clip = c.attributes().clip;
    u.loss_scale = c.attributes().loss_scale;
    u.stale = c.attributes().stale;
    return u;
}

Kernel bind_update(const Call& c) {
    const UpdatePlan u = update_plan(c);
    if (c.op.kind == Kind::sgd)
        return [u](const StepInputs& step) {
            if (!u.made(step)) return;
            const double factor = u.gradient_factor(step);
            for (std::size_t i = 0; i < u.slices.size(); ++i) sgd(u.slices[i], {step.lr, u.decays[i] ? step.weight_decay : 0.0, factor});
        };
    return [u](const StepInputs& step) {
        if (!u.made(step)) return;
        const auto number = static_cast<double>(step.update + 1);
        AdamW a;
        a.lr = step.lr;
        a.beta1 = step.beta1;
        a.beta2 = step.beta2;
        a.eps = step.eps;
        a.correction1 = 1.0 - std::pow(step.beta1, number);
        a.correction2 = 1.0 - std::pow(step.beta2, number);
        a.grad_scale = u.gradient_factor(step);
        for (std::size_t i = 0; i < u.slices.size(); ++i) {
            a.weight_decay = u.decays[i] ? step.weight_decay : 0.0;
            adamw(u.slices[i], u.m + u.offsets[i], u.v + u.offsets[i], a);
        }
    };
}

Kernel bind_join(const Call& c) {
    const Flat& flat = c.program.flats[static_cast<std::size_t>(c.attributes().unit)];
    const auto size = bytes_of(c.out_tensor(0).dtype);
    require(c.out_count(0) == flat.length, "runtime: join makes a whole flat buffer");
    return [padding = c.out[0] + flat.end * size, bytes = (flat.length - flat.end) * size](const StepInputs&) { zero(padding, bytes); };
}

}  // namespace

double clip_factor(double norm2, double clip) {
    const double norm = std::sqrt(norm2);
    return clip > 0 && norm > clip ? clip / (norm + 1e-6) : 1.0;
}

bool counts(double norm2, bool stale, const StepInputs& step) { return std::isfinite(norm2) && (!stale || step.follows_a_step); }

double scaled(double x, const StepInputs& step, int power) { return std::ldexp(x, power * std::ilogb(step.loss_scale)); }

std::int64_t sum_squares_workspace(const Program& program, const Op& op) {
    return sum_squares_workspace(local_count(program.grid(), program.type(program.inputs(op)[0])));
}

Kernel bind_flat(const Call& c) {
    switch (c.op.kind) {
        case Kind::sum_squares: return bind_sum_squares(c);
        case Kind::join: return bind_join(c);
        default: return bind_update(c);
    }
}

}  // namespace quadrille
