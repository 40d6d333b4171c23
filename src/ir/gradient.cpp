#include "ir/gradient.hpp"

#include "base/error.hpp"
#include "ir/table.hpp"

namespace quadrille {
namespace {

struct Context {
    Program& p;
    const Op op;  // a copy: appending moves the program's ops
    std::vector<TensorId> in, out;
    TensorId dy;
    DType weight_gradient;
    unsigned wanted;

    bool wants(std::size_t input) const { return (wanted >> input & 1) != 0; }
    const Attributes& attributes() const { return p.attributes(op); }
    Where where(Part part) const { return {part, op.unit, op.microbatch, op.action}; }
    // Gradient ops of activations, and of weights.
    std::vector<TensorId> input(Kind kind, std::vector<TensorId> inputs, const Attributes& a = {}, const Program::Options& o = {}) const {
        return p.add(kind, std::move(inputs), a, where(Part::backward_input), o);
    }
    std::vector<TensorId> weight(Kind kind, std::vector<TensorId> inputs, Attributes a) const {
        a.dtype = weight_gradient;
        return p.add(kind, std::move(inputs), a, where(Part::backward_weight));
    }
};
using Gradients = std::vector<InputGradient>;

// y[out] = x[a] w[b]: dx = dy w, dw = x dy, each contracted over the letters that are not in its own.
Gradients matmul_gradient(const Context& c) {
    const Signature s = parse_signature(c.attributes().signature);
    Attributes dx, dw;
    dx.signature = s.out[0] + "," + s.in[1] + "->" + s.in[0];
    dx.dtype = c.p.type(c.in[0]).dtype;
    dw.signature = s.out[0] + "," + s.in[0] + "->" + s.in[1];
    Gradients g;
    if (c.wants(0)) g.push_back({0, c.input(Kind::matmul, {c.dy, c.in[1]}, dx)[0]});
    if (c.wants(1)) g.push_back({1, c.weight(Kind::matmul, {c.dy, c.in[0]}, dw)[0]});
    return g;
}

// A residual passes its cotangent to both; a bias, having fewer letters, sums it.
Gradients add_gradient(const Context& c) {
    const Signature s = parse_signature(c.attributes().signature);
    if (s.in[1] == s.out[0]) return {{0, c.dy}, {1, c.dy}};
    if (!c.wants(1)) return {{0, c.dy}};
    Attributes a;
    a.signature = s.out[0] + "->" + s.in[1];
    return {{0, c.dy}, {1, c.weight(Kind::sum, {c.dy}, a)[0]}};
}

Gradients embedding_gradient(const Context& c) {
    Attributes a;
    a.types = {c.p.tensor(c.in[1]).type};
    return {{1, c.weight(Kind::embedding_dw, {c.in[0], c.dy}, a)[0]}};
}

Gradients norm_gradient(const Context& c) {
    Attributes a = c.attributes(), w = a;
    a.signature.clear();
    w.signature = w.rms ? "bsh,bsh->h" : "bsh,bsh->h,h";
    Gradients g;
    if (c.wants(0)) g.push_back({0, c.input(Kind::norm_dx, {c.in[0], c.in[1], c.dy}, a)[0]});
    if (!c.wants(1)) return g;  // the bias is trained or frozen as the gain is
    const auto dw = c.weight(Kind::norm_dw, {c.in[0], c.dy}, w);
    for (std::size_t i = 0; i < dw.size(); ++i) g.push_back({static_cast<int>(i) + 1, dw[i]});
    return g;
}

Gradients attention_gradient(const Context& c) {
    const Attributes& a = c.attributes();
    std::vector<TensorId> in = {c.in[0], c.in[1], c.in[2], c.out[0], c.out[1], c.dy};
    if (a.documents) in.push_back(c.in[3]);
    const auto d = c.input(Kind::attention_dx, in, a);
    return {{0, d[0]}, {1, d[1]}, {2, d[2]}};
}

// The way back of a move. A Partial value's cotangent is whole: nothing to do for an all-reduce. Otherwise back to where the value
// was (whole, where it was Partial); axes that did not move keep whatever the incoming cotangent has there.
Gradients redistribute_gradient(const Context& c) {
    const TensorType &from = c.p.type(c.in[0]), &now = c.p.type(c.dy);
    const Change moved = change(c.p, c.op);
    Placement to = from.place.whole();
    to.partial_sum = now.place.partial_sum - moved.axes;
    return {{0, c.p.to(c.dy, to, c.where(Part::backward_input))}};
}

// The logits are the largest activation and nobody reads them again: their gradient takes their place.
Gradients logit_sums_gradient(const Context& c) {
    Program::Options in_place;
    in_place.storage = {c.in[0]};
    return {{0, c.input(Kind::logit_sums_dx, {c.in[0], c.in[1], c.in[2], c.dy}, c.attributes(), in_place)[0]}};
}

Gradients token_loss_gradient(const Context& c) { return {{0, c.input(Kind::token_loss_dx, {c.in[0], c.in[1], c.dy})[0]}}; }
Gradients gelu_gradient(const Context& c) { return {{0, c.input(Kind::gelu_dx, {c.in[0], c.dy})[0]}}; }
Gradients dropout_gradient(const Context& c) { return {{0, c.input(Kind::dropout, {c.dy}, c.attributes())[0]}}; }
Gradients swiglu_gradient(const Context& c) {
    const auto d = c.input(Kind::swiglu_dx, {c.in[0], c.in[1], c.dy});
    return {{0, d[0]}, {1, d[1]}};
}
Gradients rotary_gradient(const Context& c) {
    Attributes a = c.attributes();
    a.inverse = !a.inverse;
    return {{0, c.input(Kind::rotary, {c.dy}, a)[0]}};
}

Gradients scale_gradient(const Context& c) { return {{0, c.input(Kind::scale, {c.dy}, c.attributes())[0]}}; }

using GradientRule = Gradients (*)(const Context&);
GradientRule rule_of(Kind k) {
    switch (k) {
        case Kind::matmul: return matmul_gradient;
        case Kind::add: return add_gradient;
        case Kind::embedding: return embedding_gradient;
        case Kind::norm: return norm_gradient;
        case Kind::gelu: return gelu_gradient;
        case Kind::swiglu: return swiglu_gradient;
        case Kind::dropout: return dropout_gradient;
        case Kind::rotary: return rotary_gradient;
        case Kind::scale: return scale_gradient;
        case Kind::attention: return attention_gradient;
        case Kind::logit_sums: return logit_sums_gradient;
        case Kind::token_loss: return token_loss_gradient;
        case Kind::redistribute: return redistribute_gradient;
        default: return nullptr;
    }
}

}  // namespace

bool has_gradient(Kind k) { return rule_of(k) != nullptr; }

bool carries_partial(Kind k) {
    return k == Kind::matmul || k == Kind::add || k == Kind::rotary || k == Kind::scale || k == Kind::dropout || k == Kind::redistribute;
}

std::vector<InputGradient> append_gradient(Program& p, const Op& op, TensorId dy, DType weight_gradient, unsigned wanted) {
    const GradientRule rule = rule_of(op.kind);
    require(rule != nullptr, "ir: this kind has no gradient");
    const auto in = p.inputs(op), out = p.outputs(op);
    return rule(Context{p, op, {in.begin(), in.end()}, {out.begin(), out.end()}, dy, weight_gradient, wanted});
}

}  // namespace quadrille
