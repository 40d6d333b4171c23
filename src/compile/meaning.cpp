#include "compile/meaning.hpp"

#include "ir/table.hpp"

namespace quadrille {
namespace {

// Of fewer letters than the sum it is added to, an operand is spread over the others.
Value spread(Value v, const std::string& letters, const std::string& over) {
    return letters == over ? v : (Hash("spread") << hash_text(letters) << v).value();
}

Value norm(const Attributes& a, Value x, std::span<const Value> weights) {
    Hash h("norm");
    h << a.eps << static_cast<std::uint64_t>(a.rms) << x;
    for (const Value w : weights) h << w;
    return h.value();
}

Value gelu(Value x) { return (Hash("gelu") << x).value(); }

// x, w [, bias]
Value matmul(const Signature& s, std::span<const Value> operands) {
    const Value product = (Hash("matmul") << hash_text(s.in[0] + "," + s.in[1] + "->" + s.out[0]) << operands[0] << operands[1]).value();
    return operands.size() < 3 ? product : product + (Hash("spread") << hash_text(s.in[2]) << operands[2]).value();
}

// Masks of the microbatches.
Value count(std::span<const Value> masks) {
    Value total;
    for (const Value m : masks) total = total + (Hash("count") << m).value();
    return total;
}

// Of all other kinds: every attribute that the formula of some kind has.
Value formula(const Op& op, const Attributes& a, std::size_t result, std::span<const Value> operands) {
    Hash h(row(op.kind).name);
    h << result << hash_text(a.signature) << static_cast<std::uint64_t>(a.stream) << a.factor << a.rate << a.eps << static_cast<std::uint64_t>(a.rms)
      << static_cast<std::uint64_t>(a.inverse) << a.base << static_cast<std::uint64_t>(a.vocab) << static_cast<std::uint64_t>(a.input)
      << static_cast<std::uint64_t>(a.microbatches) << static_cast<std::uint64_t>(a.loss_scale);
    if (op.kind == Kind::load || a.rate > 0) h << static_cast<std::uint64_t>(op.microbatch);
    for (const Value x : operands) h << x;
    return h.value();
}

}  // namespace

void number_results(const Program& p, const Op& op, std::span<const Value> in, std::span<Value> out) {
    const Attributes& a = p.attributes(op);
    const std::size_t operands = in.size() - (op.adds || a.carries ? out.size() : 0);
    const std::span<const Value> earlier = in.subspan(operands);  // versions of the results: running sums, or a ring's state
    switch (op.kind) {
        case Kind::zero: out[0] = Value{}; return;
        case Kind::cast: out[0] = in[0]; return;
        case Kind::count: out[0] = count(in); return;
        case Kind::add: {
            const Signature s = parse_signature(a.signature);
            out[0] = in[0] + spread(in[1], s.in[1], s.out[0]);
            return;
        }
        case Kind::norm: out[0] = norm(a, in[0], in.subspan(1)); return;
        case Kind::residual_norm:
            out[0] = in[0] + in[1];
            out[1] = norm(a, out[0], in.subspan(2));
            return;
        case Kind::gelu: out[0] = gelu(in[0]); return;
        case Kind::matmul:
        case Kind::matmul_gelu:
            out[0] = matmul(parse_signature(a.signature), in.first(operands));
            if (op.adds) out[0] = out[0] + earlier[0];
            if (op.kind == Kind::matmul_gelu) out[1] = gelu(out[0]);
            return;
        default: break;
    }
    for (std::size_t i = 0; i < out.size(); ++i) {
        out[i] = formula(op, a, i, in.first(operands));
        if (op.adds) out[i] = out[i] + earlier[i];
        // A ring's turns are pieces of one attention: what they carry on must be that of the same operands.
        if (a.carries && !(earlier[i] == out[i])) out[i] = (Hash("mixed turns") << out[i] << earlier[i]).value();
    }
}

}  // namespace quadrille
