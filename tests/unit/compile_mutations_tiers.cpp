// Moves between tiers: forgotten, of another tensor, before or after their time, to another's home.
#include "compile_mutations.hpp"

#include <algorithm>

namespace quadrille::test {
namespace {

bool reads(const Program& p, const Op& op, TensorId t) {
    const auto in = p.inputs(op);
    return std::find(in.begin(), in.end(), t) != in.end();
}

Tier tier_of(const Program& p, TensorId t) { return p.buffers[static_cast<std::size_t>(p.tensors[static_cast<std::size_t>(t)].buffer)].tier; }
// Nearer to the device, or away from it.
bool fetches(const Program& p, const Op& op) { return op.kind == Kind::move && tier_of(p, p.outputs(op)[0]) < tier_of(p, p.inputs(op)[0]); }
bool stores(const Program& p, const Op& op) { return op.kind == Kind::move && !fetches(p, op); }

bool of_another_tensor(const Site& s) {
    std::vector<TensorId> others;
    for (std::size_t t = 0; t < s.p.tensors.size(); ++t) {
        const auto other = static_cast<TensorId>(t);
        if (s.tensor(other).buffer != s.tensor(s.in()[0]).buffer && tier_of(s.p, other) == tier_of(s.p, s.in()[0]) &&
            s.p.type(other).same_place(s.p.type(s.in()[0])))
            others.push_back(other);
    }
    if (others.empty()) return false;
    s.input(0) = s.random.one_of(others);
    return true;
}

// What an earlier fetch from the same buffer brought is read instead.
bool copy_of_before(const Site& s) {
    for (std::size_t j = s.i; j-- > 0;) {
        const Op& earlier = s.p.ops[j];
        if (!fetches(s.p, earlier) || s.tensor(s.p.inputs(earlier)[0]).buffer != s.tensor(s.in()[0]).buffer) continue;
        const TensorId now = s.out()[0], before = s.p.outputs(earlier)[0];
        if (s.tensor(now).type != s.tensor(before).type) continue;
        erase_op(s.p, s.i);
        rewire(s.p, s.i, now, before);
        return true;
    }
    return false;
}

bool behind_its_use(const Site& s) {
    for (std::size_t j = s.i + 1; j < s.p.ops.size(); ++j) {
        if (!reads(s.p, s.p.ops[j], s.out()[0])) continue;
        move_op(s.p, s.i, j);
        return true;
    }
    return false;
}

bool in_flight_at_its_use(const Site& s) {
    for (std::size_t j = s.i + 1; j < s.p.ops.size(); ++j) {
        if (!reads(s.p, s.p.ops[j], s.out()[0]) || s.p.ops[j].queue != Queue::compute) continue;
        s.op().until = static_cast<std::int32_t>(j + 1);
        return true;
    }
    return false;
}

// Before what it takes home is made.
bool ahead_of_its_maker(const Site& s) {
    for (std::size_t j = s.i; j-- > 0;) {
        const auto out = s.p.outputs(s.p.ops[j]);
        if (std::find(out.begin(), out.end(), s.in()[0]) == out.end()) continue;
        move_op(s.p, s.i, j);
        return true;
    }
    return false;
}

bool to_anothers_home(const Site& s) {
    std::vector<BufferId> others;
    const BufferId mine = s.tensor(s.out()[0]).buffer;
    for (std::size_t b = 0; b < s.p.buffers.size(); ++b) {
        const Buffer& other = s.p.buffers[b];
        const Buffer& own = s.buffer(s.out()[0]);
        if (static_cast<BufferId>(b) != mine && other.tier == own.tier && other.bytes == own.bytes && other.offset >= 0)
            others.push_back(static_cast<BufferId>(b));
    }
    if (others.empty()) return false;
    s.tensor(s.out()[0]).buffer = s.random.one_of(others);
    return true;
}

}  // namespace

std::vector<MutationKind> tier_mutations() {
    return {
        {"fetch between tiers dropped", fetches, drop},
        {"fetch of another tensor", fetches, of_another_tensor},
        {"the copy of an earlier fetch", fetches, copy_of_before},
        {"fetch behind its use", fetches, behind_its_use},
        {"fetch in flight at its use", fetches, in_flight_at_its_use},
        {"store between tiers dropped", stores, drop},
        {"store of another tensor", stores, of_another_tensor},
        {"store ahead of its maker", stores, ahead_of_its_maker},
        {"store to another's home", stores, to_anothers_home},
        {"move between tiers made twice", of_kind({Kind::move}), repeat},
    };
}

}  // namespace quadrille::test
