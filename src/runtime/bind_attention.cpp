// Attention: positions, sequences and heads by their global numbers, so masks and dropout are right on any grid; a ring's turn
// takes the running result among its last inputs, in the place of its outputs.
#include "base/error.hpp"
#include "base/random.hpp"
#include "ir/table.hpp"
#include "runtime/bindings.hpp"

namespace quadrille {
namespace {

Attention arguments(const Call& c, std::size_t fixed) {
    const Attributes& a = c.attributes();
    const auto q = c.in_shape(0), k = c.in_shape(1);
    Attention at{};
    at.shape = {q[0], q[1], k[1], q[2], k[2], q[3]};
    at.type = c.in_tensor(0).dtype;
    at.q = c.in[0];
    at.k = c.in[1];
    at.v = c.in[2];
    const auto &q_position = c.lists.of(c.in_type(0), 1), &k_position = c.lists.of(c.in_type(1), 1);
    const auto& kv_head = c.lists.kv_heads(c.in_type(0), c.in_type(1));
    at.q_position = q_position.device;
    at.k_position = k_position.device;
    at.document_start = a.documents ? reinterpret_cast<const std::int32_t*>(c.in[fixed - 1]) : nullptr;
    at.kv_head = kv_head.device;
    at.in_order = in_order(q_position.host, k_position.host, kv_head.host, at.shape.g);
    if (a.rate > 0) {
        at.dropout.rate = static_cast<float>(a.rate);
        at.dropout.sample = c.lists.samples(c.in_type(0), c.op.microbatch).device;
        at.dropout.head = c.lists.of(c.in_type(0), 2).device;
        at.dropout.heads = c.in_tensor(0).shape[2];
        at.dropout.seq = c.in_tensor(0).shape[1];
    }
    at.workspace = c.workspace;
    return at;
}

}  // namespace

Kernel bind_attention(const Call& c) {
    const Attributes& a = c.attributes();
    const bool backward = c.op.kind == Kind::attention_dx;
    require(!a.unexpanded, "runtime: a ring was not expanded");
    const std::size_t fixed = attention_operands(c.op.kind, a.documents);
    for (std::size_t i = 0; a.carries && i < c.out.size(); ++i)
        require(c.in[fixed + i] == c.out[i], "runtime: a running attention does not share its storage");
    const Attention at = arguments(c, fixed);
    const auto keyed = [at, stream = a.stream](const StepInputs& s) {
        Attention now = at;
        now.dropout.key = random_key(s.seed, s.step, stream);
        return now;
    };
    const DType type = c.out_tensor(0).dtype;
    const bool carries = a.carries;
    if (backward)
        return [=, o = c.in[3], lse = reinterpret_cast<const float*>(c.in[4]), d_o = c.in[5], out = c.out, &k = c.kernels](const StepInputs& s) {
            k.attention_dx(keyed(s), o, lse, d_o, out[0], out[1], out[2], type, carries);
        };
    return [=, o = c.out[0], lse = reinterpret_cast<float*>(c.out[1]), &k = c.kernels](const StepInputs& s) {
        k.attention(keyed(s), o, type, lse, carries);
    };
}

std::int64_t attention_workspace(const Program& program, const Op& op, const Kernels& kernels) {
    const auto in = program.inputs(op);
    const auto q = local_shape(program.grid(), program.type(in[0])), k = local_shape(program.grid(), program.type(in[1]));
    return kernels.attention_workspace({q[0], q[1], k[1], q[2], k[2], q[3]}, program.type(in[0]).dtype, op.kind == Kind::attention_dx);
}

}  // namespace quadrille
