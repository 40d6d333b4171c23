#include "compile_mutations.hpp"

#include <algorithm>

namespace quadrille::test {

void erase_op(Program& p, std::size_t i) {
    p.ops.erase(p.ops.begin() + static_cast<std::ptrdiff_t>(i));
    for (std::size_t j = 0; j < p.ops.size(); ++j) {
        Op& op = p.ops[j];
        if (op.until > static_cast<std::int32_t>(i)) --op.until;
        if (op.until >= 0 && op.until <= static_cast<std::int32_t>(j)) op.until = -1;
    }
}

void insert_op(Program& p, std::size_t i, const Op& op) {
    for (Op& other : p.ops)
        if (other.until > static_cast<std::int32_t>(i)) ++other.until;
    p.ops.insert(p.ops.begin() + static_cast<std::ptrdiff_t>(i), op);
    if (p.ops[i].until >= 0) p.ops[i].until = std::max(p.ops[i].until, static_cast<std::int32_t>(i) + 1);
}

void move_op(Program& p, std::size_t from, std::size_t to) {
    const Op op = p.ops[from];
    erase_op(p, from);
    insert_op(p, to, op);
}

void set_operands(Program& p, Op& op, const std::vector<TensorId>& in, const std::vector<TensorId>& out) {
    p.set_operands(op, in, out);
}

void rewire(Program& p, std::size_t from, TensorId old, TensorId now) {
    for (std::size_t j = from; j < p.ops.size(); ++j)
        for (std::size_t k = 0; k < p.ops[j].inputs; ++k) {
            TensorId& t = p.operands[static_cast<std::size_t>(p.ops[j].first) + k];
            if (t == old) t = now;
        }
    p.tell_instead(old, now);
}

Applies of_kind(std::initializer_list<Kind> kinds) {
    return [kinds = std::vector<Kind>(kinds)](const Program&, const Op& op) { return std::find(kinds.begin(), kinds.end(), op.kind) != kinds.end(); };
}
bool reads_something(const Program&, const Op& op) { return op.inputs > 0; }
bool makes_something(const Program&, const Op& op) { return op.outputs > 0; }

bool drop(const Site& s) {
    erase_op(s.p, s.i);
    return true;
}

bool repeat(const Site& s) {
    insert_op(s.p, s.i, Op(s.op()));
    return true;
}

namespace {

// Readers of each result read an input instead: the one as many places after `first`.
bool read_inputs(const Site& s, std::size_t first) {
    const auto in = s.in(), out = s.out();
    erase_op(s.p, s.i);
    for (std::size_t k = 0; k < out.size(); ++k) rewire(s.p, s.i, out[k], in[first + k]);
    return true;
}

}  // namespace

bool bypass(const Site& s) { return s.op().outputs > 0 && s.op().inputs >= s.op().outputs && read_inputs(s, 0); }
bool bypass_sum(const Site& s) { return read_inputs(s, s.op().inputs - s.op().outputs); }

TensorId copy_tensor(Program& p, TensorId t) {
    p.tensors.push_back(p.tensors[static_cast<std::size_t>(t)]);
    return static_cast<TensorId>(p.tensors.size() - 1);
}

}  // namespace quadrille::test
