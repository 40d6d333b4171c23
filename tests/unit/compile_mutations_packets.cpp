// Compressed gradients: residuals forgotten, stale or of another unit, packets of another gradient, made or added twice, unpacked otherwise.
#include "compile_mutations.hpp"

#include <algorithm>

namespace quadrille::test {
namespace {

bool with_residual(const Program& p, const Op& op) { return op.kind == Kind::compress && p.inputs(op).size() == 2; }
bool sends_packets(const Program& p, const Op& op) {
    return op.kind == Kind::redistribute && op.queue == Queue::collective && p.type(p.inputs(op)[0]).dtype == DType::u8 &&
           p.type(p.inputs(op)[0]).dims == 3;
}

// The k-th input is replaced by another tensor of its type that is some op's result, or state.
bool other_input(const Site& s, std::size_t k) {
    std::vector<TensorId> others = s.p.initial_state();
    for (const Op& op : s.p.ops) others.insert(others.end(), s.p.outputs(op).begin(), s.p.outputs(op).end());
    std::erase_if(others, [&](TensorId t) { return t == s.in()[k] || !s.p.type(t).same_place(s.p.type(s.in()[k])); });
    if (others.empty()) return false;
    s.input(k) = s.random.one_of(others);
    return true;
}

template <std::size_t k>
bool another(const Site& s) { return other_input(s, k); }

// Packed without it; what would be left is the residual as it was.
bool without_residual(const Site& s) {
    const auto in = s.in(), out = s.out();
    set_operands(s.p, s.op(), {in[0]}, {out[0]});
    rewire(s.p, s.i + 1, out[1], in[1]);
    return true;
}

// Those who read what is left read what was there before.
bool residual_not_replaced(const Site& s) {
    rewire(s.p, s.i + 1, s.out()[1], s.in()[1]);
    return true;
}

bool packed_otherwise(const Site& s) {
    change_attributes(s, [](Attributes& a) { a.packing.ratio += 0.25; });  // as many bytes: the method does not ask
    return true;
}

// An op is left out, and its reader takes what it would have read.
bool left_out(const Site& s) {
    const TensorId x = s.in()[0], y = s.out()[0];
    erase_op(s.p, s.i);
    rewire(s.p, s.i, y, x);
    return true;
}

}  // namespace

std::vector<MutationKind> packet_mutations() {
    return {
        {"residual dropped", with_residual, without_residual},
        {"residual of another unit or time", with_residual, another<1>},
        {"residual not replaced", with_residual, residual_not_replaced},
        {"another gradient packed", of_kind({Kind::compress}), another<0>},
        {"packed twice", of_kind({Kind::compress}), repeat},
        {"packets not sent", sends_packets, left_out},
        {"packets sent twice", sends_packets, repeat},
        {"packets of another unit or time unpacked", of_kind({Kind::decompress}), another<0>},
        {"packets added twice", of_kind({Kind::decompress}), repeat},
        {"packets not added", of_kind({Kind::decompress}), drop},
        {"packed in another way than unpacked", of_kind({Kind::compress}), packed_otherwise},
        {"unpacked in another way than packed", of_kind({Kind::decompress}), packed_otherwise},
        {"residual not kept", of_kind({Kind::retain}), drop},
        {"residual kept for another unit", of_kind({Kind::retain}), another<1>},
        {"another residual replaced", of_kind({Kind::retain}), another<0>},
        {"residual kept by another scalar", of_kind({Kind::retain}), another<2>},
    };
}

}  // namespace quadrille::test
