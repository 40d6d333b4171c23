// Running sums, counts and the gradient's norm: terms forgotten, counted twice, of the wrong thing.
#include "compile_mutations.hpp"

#include <algorithm>

namespace quadrille::test {
namespace {

bool adds(const Program&, const Op& op) { return op.adds; }
bool sums(const Program&, const Op& op) { return op.adds || op.kind == Kind::accumulate; }
bool adds_squares(const Program& p, const Op& op) { return op.kind == Kind::add && p.tables->name(op.unit) == "norm"; }
bool writes_sum(const Program&, const Op& op) { return op.writes_sum; }

// A weight gradient overwrites those of earlier microbatches.
bool overwritten(const Site& s) {
    auto in = s.in();
    in.resize(in.size() - s.op().outputs);
    set_operands(s.p, s.op(), in, s.out());
    s.op().adds = false;
    return true;
}

// ... and says so in its type.
bool overwritten_and_typed(const Site& s) {
    overwritten(s);
    for (const TensorId t : s.out()) {
        TensorType type = s.p.type(t);
        type.covers = s.p.tables->covers({Contribution{s.op().microbatch, s.op().use}});
        s.tensor(t).type = s.p.tables->intern(type);
    }
    return true;
}

bool skipped(const Site& s) {
    return s.op().kind == Kind::accumulate ? bypass(s) : bypass_sum(s);
}

bool added_twice(const Site& s) {
    Op op = s.op();
    auto in = s.in();
    const auto out = s.out();
    std::vector<TensorId> again;
    for (std::size_t k = 0; k < out.size(); ++k) {
        again.push_back(copy_tensor(s.p, out[k]));
        in[op.kind == Kind::accumulate ? k : in.size() - out.size() + k] = out[k];
    }
    set_operands(s.p, op, in, again);
    insert_op(s.p, s.i + 1, op);
    for (std::size_t k = 0; k < out.size(); ++k) rewire(s.p, s.i + 2, out[k], again[k]);
    return true;
}

bool contribution_relabelled(const Site& s) {
    if (s.random.below(2))
        s.op().use = static_cast<std::int8_t>(s.op().use + 1);
    else
        s.op().microbatch += s.op().microbatch > 0 ? -1 : 1;
    return true;
}

bool mask_left_out(const Site& s) {
    auto in = s.in();
    if (in.size() < 2) return false;
    in.erase(in.begin() + static_cast<std::ptrdiff_t>(s.random.below(in.size())));
    set_operands(s.p, s.op(), in, s.out());
    change_attributes(s, [&](Attributes& a) { a.signature = a.signature.substr(3); });
    return true;
}

bool mask_counted_twice(const Site& s) {
    const auto in = s.in();
    if (in.size() < 2) return false;
    const std::size_t k = s.random.below(in.size());
    s.input(k) = in[(k + 1) % in.size()];
    return true;
}

bool tokens_for_inverse(const Site& s) {
    for (std::size_t k = 0; k < s.op().inputs; ++k) {
        const TensorId t = s.in()[k];
        for (std::size_t j = 0; j < s.i; ++j)
            if (s.p.ops[j].kind == Kind::reciprocal && s.p.outputs(s.p.ops[j])[0] == t) {
                s.input(k) = s.p.inputs(s.p.ops[j])[0];
                return true;
            }
    }
    return false;
}

// The unit's squares are never added: everyone reads the sum without them.
bool unit_left_out(const Site& s) {
    if (s.random.below(2)) return bypass(s);
    const TensorId second = s.in()[1], sum = s.out()[0];
    erase_op(s.p, s.i);
    rewire(s.p, s.i, sum, second);
    return true;
}

bool unit_counted_twice(const Site& s) {
    s.input(s.random.below(2)) = s.in()[s.random.below(2)];
    return s.in()[0] == s.in()[1];
}

bool squares_of_other_parameters(const Site& s) {
    const AxisSet real = s.p.grid().real(tensor_axes);
    if (real.empty()) return false;
    change_attributes(s, [&](Attributes& a) { a.which = a.which.empty() ? real : AxisSet{}; });
    return true;
}

// The same, and the type follows.
bool squares_of_other_parameters_typed(const Site& s) {
    if (!squares_of_other_parameters(s)) return false;
    TensorType t = s.p.type(s.out()[0]);
    t.place.partial_sum = (t.place.partial_sum - tensor_axes) | s.attributes().which;
    s.tensor(s.out()[0]).type = s.p.tables->intern(t);
    return true;
}

bool squares_before_the_sum(const Site& s) {
    const TensorId g = s.in()[0];
    for (std::size_t j = s.i; j-- > 0;)
        for (std::size_t k = 0; k < s.p.ops[j].outputs; ++k)
            if (s.p.ops[j].kind == Kind::redistribute && s.p.outputs(s.p.ops[j])[k] == g) {
                s.input(0) = s.p.inputs(s.p.ops[j])[k];
                return true;
            }
    return false;
}

// The loop is told another scalar.
bool wrong_scalar(const Site& s) {
    TensorId& told = s.random.below(2) ? s.p.loss : s.p.norm;
    if (told < 0) return false;
    for (std::size_t j = 0; j < s.p.ops.size(); ++j) {
        const auto out = s.p.outputs(s.p.ops[j]);
        if (out.size() != 1 || out[0] == told || s.p.type(out[0]).dims != 0 || s.p.type(out[0]).dtype != DType::f64 ||
            s.random.below(3) != 0)
            continue;
        told = out[0];
        return true;
    }
    return false;
}

}  // namespace

std::vector<MutationKind> sum_mutations() {
    const Applies is_count = of_kind({Kind::count}), is_squares = of_kind({Kind::sum_squares});
    return {
        {"sum overwritten", adds, overwritten},
        {"sum overwritten, and typed so", adds, overwritten_and_typed},
        {"term skipped", sums, skipped},
        {"term added twice", sums, added_twice},
        {"sum made twice", sums, repeat},
        {"term relabelled", writes_sum, contribution_relabelled},
        {"mask left out of the count", is_count, mask_left_out},
        {"mask counted twice", is_count, mask_counted_twice},
        {"tokens for 1/tokens", of_kind({Kind::token_loss_dx, Kind::mean_loss}), tokens_for_inverse},
        {"unit left out of the norm", adds_squares, unit_left_out},
        {"unit counted twice in the norm", adds_squares, unit_counted_twice},
        {"squares of other parameters", is_squares, squares_of_other_parameters},
        {"squares of other parameters, typed", is_squares, squares_of_other_parameters_typed},
        {"squares before the sum", is_squares, squares_before_the_sum},
        {"another scalar told", is_squares, wrong_scalar},
    };
}

}  // namespace quadrille::test
