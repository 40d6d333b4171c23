// What looks into a unit's flat buffer: the gradient's norm, the update, the padding. A rank works on its own slice of the
// buffer, segment by segment; bytes behind the last segment are left as they are by all but join.
#include "base/error.hpp"
#include "base/rounding.hpp"
#include "runtime/bindings.hpp"

#include <algorithm>
#include <cmath>

namespace quadrille {
namespace {

// Of this rank's slice, that is of the buffer that begins at flat element `first`.
struct Stretch { Extent elements; bool decays = false; };

// The segments of the unit that `wanted` picks, cut to this rank's slice of `t`; neighbours that are treated alike are joined.
template <class Wanted>
std::vector<Stretch> stretches(const Call& c, const TensorType& t, Wanted wanted) {
    const std::int64_t first = first_index(c.program.grid(), t, 0, c.at), count = local_count(c.program.grid(), t);
    std::vector<Stretch> out;
    for (const FlatSegment& s : c.program.flats[static_cast<std::size_t>(c.attributes().unit)].segments) {
        const Parameter& p = c.program.parameters[static_cast<std::size_t>(s.parameter)];
        const std::int64_t begin = std::max<std::int64_t>(s.offset - first, 0), end = std::min(s.offset + s.count - first, count);
        if (begin >= end || !wanted(p)) continue;
        const bool goes_on = !out.empty() && out.back().elements.offset + out.back().elements.count == begin && out.back().decays == p.decays;
        if (goes_on) out.back().elements.count += end - begin;
        else out.push_back({{begin, end - begin}, p.decays});
    }
    return out;
}

// Squares are summed in fixed blocks of the flat buffer, in order: the same bits for a slice, wherever it lies. What comes before a stretch's first
// whole block is a stretch of its own.
Kernel bind_sum_squares(const Call& c) {
    const AxisSet which = c.attributes().which;
    const Tables& tables = *c.program.tables;
    const auto picked = stretches(c, c.in_tensor(0), [&](const Parameter& p) {
        return (tables.type(p.type).place.cut_axes() & tensor_axes) == which;
    });
    Extents blocks;
    for (const Stretch& s : picked) {
        const std::int64_t begin = s.elements.offset, end = begin + s.elements.count, border = std::min(end, aligned_up(begin, flat_block));
        if (border > begin) blocks.push_back({begin, border - begin});
        if (end > border) blocks.push_back({border, end - border});
    }
    return [blocks, g = c.in[0], type = c.in_tensor(0).dtype, out = reinterpret_cast<double*>(c.out[0]), workspace = c.workspace,
            &k = c.kernels](const StepInputs&) { k.sum_squares(g, type, blocks, out, workspace); };
}

// weights, gradient, norm² [, fp32 masters] [, m, v]: all but gradient and norm are rewritten in place.
std::vector<ParameterSlice> slices_of(const Call& c) {
    const std::size_t moments = c.op.kind == Kind::adamw ? 2 : 0;
    const bool masters = c.in_tensor(0).dtype != DType::f32;
    const std::size_t state = 3 + (masters ? 1 : 0);
    require(c.in.size() == state + moments && c.out.size() + 2 == c.in.size(),
            "runtime: an update has other operands than its kind and precision need");
    require(c.in[0] == c.out[0] && std::equal(c.out.begin() + 1, c.out.end(), c.in.begin() + 3), "runtime: an update does not share its storage");
    const auto type = c.in_tensor(1).dtype, weight_type = c.in_tensor(0).dtype;
    const auto floats = [&](std::size_t i, std::int64_t at) { return reinterpret_cast<float*>(c.in[i]) + at; };
    std::vector<ParameterSlice> slices;
    for (const Stretch& s : stretches(c, c.in_tensor(0), [](const Parameter&) { return true; })) {
        const std::int64_t begin = s.elements.offset;
        ParameterSlice slice;
        slice.count = s.elements.count;
        slice.master = floats(masters ? 3 : 0, begin);
        if (moments) slice.m = floats(state, begin), slice.v = floats(state + 1, begin);
        slice.gradient = c.in[1] + begin * bytes_of(type);
        slice.gradient_type = type;
        slice.weight = masters ? c.in[0] + begin * bytes_of(weight_type) : nullptr;
        slice.weight_type = weight_type;
        slice.decays = s.decays;
        slices.push_back(slice);
    }
    return slices;
}

Kernel bind_update(const Call& c) {
    const Attributes& a = c.attributes();
    const auto clip = [norm2 = reinterpret_cast<const double*>(c.in[2]), at = a.clip, power = a.loss_scale](const StepInputs& step) {
        return Clip{norm2, at, scaled(1.0, step, power)};
    };
    if (c.op.kind == Kind::sgd)
        return [slices = slices_of(c), clip, stale = a.stale, &k = c.kernels](const StepInputs& step) {
            if (may_update(stale, step)) k.sgd(slices, {step.lr, step.weight_decay}, clip(step));
        };
    return [slices = slices_of(c), clip, stale = a.stale, &k = c.kernels](const StepInputs& step) {
        if (!may_update(stale, step)) return;
        const auto number = static_cast<double>(step.update + 1);
        AdamW adamw;
        adamw.lr = step.lr;
        adamw.beta1 = step.beta1;
        adamw.beta2 = step.beta2;
        adamw.eps = step.eps;
        adamw.weight_decay = step.weight_decay;
        adamw.correction1 = 1.0 - std::pow(step.beta1, number);
        adamw.correction2 = 1.0 - std::pow(step.beta2, number);
        k.adamw(slices, adamw, clip(step));
    };
}

Kernel bind_join(const Call& c) {
    const Flat& flat = c.program.flats[static_cast<std::size_t>(c.attributes().unit)];
    const auto size = bytes_of(c.out_tensor(0).dtype);
    require(c.out_count(0) == flat.length, "runtime: join makes a whole flat buffer");
    return [padding = c.out[0] + flat.end * size, bytes = (flat.length - flat.end) * size, &k = c.kernels](const StepInputs&) {
        k.zero(padding, bytes);
    };
}

}  // namespace

bool may_update(bool stale, const StepInputs& step) { return !stale || step.follows_a_step; }

double scaled(double x, const StepInputs& step, int power) { return std::ldexp(x, power * std::ilogb(step.loss_scale)); }

std::int64_t sum_squares_workspace(const Program& program, const Op& op, const Kernels& kernels) {
    const Flat& flat = program.flats[static_cast<std::size_t>(program.attributes(op).unit)];
    return kernels.sum_squares_workspace(local_count(program.grid(), program.type(program.inputs(op)[0])), 2 * std::ssize(flat.segments));
}

Kernel bind_flat(const Call& c) {
    switch (c.op.kind) {
        case Kind::sum_squares: return bind_sum_squares(c);
        case Kind::join: return bind_join(c);
        default: return bind_update(c);
    }
}

}  // namespace quadrille
