// Cut training state: gathers and reductions of units forgotten, of the wrong unit, to the wrong slice, before or after their time.
#include "compile_mutations.hpp"

#include <algorithm>

namespace quadrille::test {
namespace {

bool moves_unit(const Program& p, const Op& op) {
    return op.kind == Kind::redistribute && op.queue == Queue::collective && p.type(p.inputs(op)[0]).dims == 1;
}
Pair pair_of(const Program& p, const Op& op) { return change(p.type(p.inputs(op)[0]), p.tables->type(p.attributes(op).types[0]).place).pair; }
bool in_place(const Program& p, const Op& op) {
    return p.tensors[static_cast<std::size_t>(p.inputs(op)[0])].buffer == p.tensors[static_cast<std::size_t>(p.outputs(op)[0])].buffer;
}

bool gathers(const Program& p, const Op& op) { return moves_unit(p, op) && pair_of(p, op) == Pair::all_gather; }
bool gathers_for_use(const Program& p, const Op& op) { return gathers(p, op) && !in_place(p, op); }
bool gathers_new_weights(const Program& p, const Op& op) { return gathers(p, op) && in_place(p, op); }
bool scatters(const Program& p, const Op& op) { return moves_unit(p, op) && pair_of(p, op) == Pair::reduce_scatter; }
bool sums_copies(const Program& p, const Op& op) {
    return moves_unit(p, op) && pair_of(p, op) == Pair::all_reduce && p.type(p.inputs(op)[0]).place.partial_sum.has(Axis::replica);
}
bool moves_several(const Program& p, const Op& op) { return moves_unit(p, op) && op.inputs > 1; }

// The k-th input is replaced by another tensor of its type that passes `test`.
bool replace(const Site& s, std::size_t k, const std::function<bool(TensorId)>& test) {
    std::vector<TensorId> others;
    for (std::size_t t = 0; t < s.p.tensors.size(); ++t) {
        const auto other = static_cast<TensorId>(t);
        if (other != s.in()[k] && s.p.type(other).same_place(s.p.type(s.in()[k])) && test(other)) others.push_back(other);
    }
    if (others.empty()) return false;
    s.input(k) = s.random.one_of(others);
    return true;
}

bool of_another_unit(const Site& s) {
    const Tensor now = s.tensor(s.in()[0]);
    return replace(s, 0, [&](TensorId other) {
        return s.buffer(other).persistent && s.buffer(other).book == Book::weights && s.tensor(other).buffer != now.buffer;
    });
}

// The gather is left out: what it brought is read where an earlier gather brought the same unit.
bool copy_of_before(const Site& s) {
    for (std::size_t j = s.i; j-- > 0;) {
        const Op& earlier = s.p.ops[j];
        if (!gathers_for_use(s.p, earlier) || s.p.inputs(earlier)[0] != s.in()[0]) continue;
        const TensorId now = s.out()[0], before = s.p.outputs(earlier)[0];
        const BufferId old = s.tensor(now).buffer;
        for (Tensor& t : s.p.tensors)  // the views too
            if (t.buffer == old) t.buffer = s.tensor(before).buffer;
        erase_op(s.p, s.i);
        rewire(s.p, s.i, now, before);
        return true;
    }
    return false;
}

bool behind_its_use(const Site& s) {
    const TensorId t = s.out()[0];
    for (std::size_t j = s.i + 1; j < s.p.ops.size(); ++j) {
        const auto in = s.p.inputs(s.p.ops[j]);
        if (std::find(in.begin(), in.end(), t) == in.end()) continue;
        const auto views = std::vector<TensorId>(s.p.outputs(s.p.ops[j]).begin(), s.p.outputs(s.p.ops[j]).end());
        for (std::size_t k = j + 1; k < s.p.ops.size(); ++k)
            for (const TensorId x : s.p.inputs(s.p.ops[k]))
                if (std::find(views.begin(), views.end(), x) != views.end()) {
                    move_op(s.p, s.random.below(2) ? j : s.i, k);  // the views are taken too late, or the whole comes too late
                    return true;
                }
    }
    return false;
}

// The slice of the rank before.
bool to_another_slice(const Site& s) {
    Placement to = s.p.tables->type(s.attributes().types[0]).place;
    Cuts& cuts = to.cuts[0];
    if (cuts.empty()) return false;
    cuts.cut[s.random.below(cuts.count)].turn = 1;
    change_attributes(s, [&](Attributes& a) { a.types[0] = s.p.tables->intern(s.p.tables->type(a.types[0]).placed(to)); });
    for (const TensorId t : s.out()) s.tensor(t).type = s.p.tables->intern(s.p.type(t).placed(to));
    return true;
}

// ... and everyone who reads it is told so.
bool to_another_slice_throughout(const Site& s) {
    const std::vector<TensorId> made = s.out();
    if (!to_another_slice(s)) return false;
    const Placement to = s.p.type(made[0]).place;
    std::vector<bool> moved(s.p.tensors.size(), false);
    for (const TensorId t : made) moved[static_cast<std::size_t>(t)] = true;
    for (std::size_t j = s.i + 1; j < s.p.ops.size(); ++j) {
        const Op& op = s.p.ops[j];
        const auto in = s.p.inputs(op);
        const bool reads = std::any_of(in.begin(), in.end(), [&](TensorId t) { return moved[static_cast<std::size_t>(t)]; });
        if (op.kind != Kind::accumulate || !reads) continue;
        for (std::size_t k = 0; k < op.inputs + static_cast<std::size_t>(op.outputs); ++k) {
            const TensorId t = s.p.operands[static_cast<std::size_t>(op.first) + k];
            s.tensor(t).type = s.p.tables->intern(s.p.type(t).placed(to));
            moved[static_cast<std::size_t>(t)] = true;
        }
    }
    return true;
}

// The sum of another microbatch, or of another unit, takes the way of this one.
bool of_another_sum(const Site& s) {
    return replace(s, s.random.below(s.op().inputs), [&](TensorId other) {
        for (const Op& op : s.p.ops)
            if (op.kind == Kind::join && s.p.outputs(op)[0] == other) return true;
        return false;
    });
}

bool done_twice(const Site& s) {
    insert_op(s.p, s.i, Op(s.op()));
    return true;
}

// The weights as they were before the update.
bool old_weights(const Site& s) {
    for (std::size_t j = s.i; j-- > 0;) {
        const Op& op = s.p.ops[j];
        if ((op.kind != Kind::adamw && op.kind != Kind::sgd) || s.p.outputs(op)[0] != s.in()[0]) continue;
        s.input(0) = s.p.inputs(op)[0];
        if (s.random.below(2)) move_op(s.p, s.i, j);
        return true;
    }
    return false;
}

bool dropped(const Site& s) {
    erase_op(s.p, s.i);
    return true;
}

// One of the tensors that travel together stays behind.
bool one_left_behind(const Site& s) {
    auto in = s.in(), out = s.out();
    const std::size_t k = s.random.below(in.size());
    const TensorId x = in[k], y = out[k];
    in.erase(in.begin() + static_cast<std::ptrdiff_t>(k));
    out.erase(out.begin() + static_cast<std::ptrdiff_t>(k));
    set_operands(s.p, s.op(), in, out);
    if (s.random.below(2)) rewire(s.p, s.i + 1, y, x);
    return true;
}

// Two tensors that travel together arrive in each other's place.
bool results_exchanged(const Site& s) {
    const auto out = s.out();
    std::vector<std::pair<std::size_t, std::size_t>> alike;
    for (std::size_t a = 0; a < out.size(); ++a)
        for (std::size_t b = a + 1; b < out.size(); ++b)
            if (s.tensor(out[a]).type == s.tensor(out[b]).type) alike.emplace_back(a, b);
    if (alike.empty()) return false;
    const auto [a, b] = s.random.one_of(alike);
    std::swap(s.input(s.op().inputs + a), s.input(s.op().inputs + b));
    return true;
}

}  // namespace

std::vector<MutationKind> zero_mutations() {
    return {
        {"gather of another unit", gathers, of_another_unit},
        {"the copy of an earlier gather", gathers_for_use, copy_of_before},
        {"gather behind its use", gathers_for_use, behind_its_use},
        {"scatter to another rank's slice", scatters, to_another_slice},
        {"... and sums there", scatters, to_another_slice_throughout},
        {"scatter of another sum", scatters, of_another_sum},
        {"scatter made twice", scatters, done_twice},
        {"sum over replicas dropped", sums_copies, bypass},
        {"sum over replicas made twice", sums_copies, done_twice},
        {"old weights gathered", gathers_new_weights, old_weights},
        {"new weights not gathered", gathers_new_weights, dropped},
        {"one of a bucket left behind", moves_several, one_left_behind},
        {"results of a bucket exchanged", moves_several, results_exchanged},
    };
}

}  // namespace quadrille::test
