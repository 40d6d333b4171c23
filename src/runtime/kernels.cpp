#include "runtime/kernels.hpp"

#include "base/error.hpp"
#include "base/random.hpp"
#include "ir/table.hpp"
#include "runtime/bindings.hpp"

#include <algorithm>

namespace quadrille {
namespace {

template <class T> T* as(std::byte* p) { return reinterpret_cast<T*>(p); }

// Tensors of one shape, or a bias with the last letters of the other.
Kernel bind_add(const Call& c) {
    require(c.in.size() == 2, "runtime: add takes two operands");
    const std::int64_t count = c.out_count(0), small = c.in_count(1);
    const auto type = c.out_tensor(0).dtype;
    std::byte *a = c.in[0], *b = c.in[1], *y = c.out[0];
    if (count == small) return [=, &k = c.kernels](const StepInputs&) { k.add(a, b, y, count, type); };
    return [=, &k = c.kernels](const StepInputs&) { k.add_bias(a, b, y, count / small, small, type); };
}

// "bsnd->nd": the letters that stay are the last ones.
struct ColumnSum { std::int64_t rows, cols; };
ColumnSum column_sum_of(const Program& p, const Op& op) {
    const std::int64_t cols = local_count(p.grid(), p.type(p.outputs(op)[0]));
    return {local_count(p.grid(), p.type(p.inputs(op)[0])) / cols, cols};
}

Kernel bind_sum(const Call& c) {
    const Signature s = parse_signature(c.attributes().signature);
    require(s.in[0].ends_with(s.out[0]), "runtime: a sum keeps the last dims");
    return [sum = column_sum_of(c.program, c.op), x = c.in[0], y = c.out[0], from = c.in_tensor(0).dtype, to = c.out_tensor(0).dtype,
            adds = c.op.adds, workspace = c.workspace, &k = c.kernels](const StepInputs&) {
        k.column_sum(x, from, y, to, sum.rows, sum.cols, adds, workspace);
    };
}

// Without the place of this rank's rows, which depends on its coordinate.
Embedding embedding_of(const Program& p, const Op& op) {
    const TensorType& table = op.kind == Kind::embedding_dw ? p.type(p.outputs(op)[0]) : p.type(p.inputs(op)[1]);
    const auto local = local_shape(p.grid(), table);
    return {local_count(p.grid(), p.type(p.inputs(op)[0])), local[1], 0, local[0]};
}

Kernel bind_embedding(const Call& c) {
    const bool backward = c.op.kind == Kind::embedding_dw;
    const TensorType& table = backward ? c.out_tensor(0) : c.in_tensor(1);
    Embedding e = embedding_of(c.program, c.op);
    e.first_row = first_index(c.program.grid(), table, 0, c.at);
    require(table.place.cuts[1].empty(), "runtime: a table's rows are whole");
    const auto* ids = as<std::int32_t>(c.in[0]);
    if (backward)
        return [=, dy = c.in[1], y = c.out[0], from = c.in_tensor(1).dtype, to = table.dtype, adds = c.op.adds,
                workspace = c.workspace, &k = c.kernels](const StepInputs&) {
            k.embedding_dw(e, ids, dy, from, y, to, adds, workspace);
        };
    return [=, rows = c.in[1], y = c.out[0], type = table.dtype, &k = c.kernels](const StepInputs&) { k.embedding(e, ids, rows, y, type); };
}

Norm norm_of(const Program& p, const Op& op) {
    const Attributes& a = p.attributes(op);
    const TensorType& x = p.type(p.inputs(op)[0]);
    Norm n;
    n.h = x.shape[static_cast<std::size_t>(x.dims - 1)];
    n.rows = local_count(p.grid(), x) / n.h;
    n.eps = static_cast<float>(a.eps);
    n.rms = a.rms;
    n.t = x.dtype;
    return n;
}

Kernel bind_norm(const Call& c) {
    const Norm n = norm_of(c.program, c.op);
    const auto& in = c.in;
    switch (c.op.kind) {
        case Kind::norm:
            return [=, x = in[0], gain = in[1], bias = in.size() > 2 ? in[2] : nullptr, y = c.out[0], &k = c.kernels](const StepInputs&) {
                k.norm(n, x, gain, bias, y);
            };
        case Kind::residual_norm:
            return [=, x = in[0], r = in[1], gain = in[2], bias = in.size() > 3 ? in[3] : nullptr, sum = c.out[0], y = c.out[1],
                    &k = c.kernels](const StepInputs&) {
                k.residual_norm(n, x, r, gain, bias, sum, y);
            };
        case Kind::norm_dx:
            return [=, x = in[0], gain = in[1], dy = in[2], dx = c.out[0], &k = c.kernels](const StepInputs&) { k.norm_dx(n, x, gain, dy, dx); };
        default:
            return [=, x = in[0], dy = in[1], gain = c.out[0], bias = c.out.size() > 1 ? c.out[1] : nullptr, type = c.out_tensor(0).dtype,
                    adds = c.op.adds, workspace = c.workspace, &k = c.kernels](const StepInputs&) {
                k.norm_dw(n, x, dy, gain, bias, type, adds, workspace);
            };
    }
}

Kernel bind_dropout(const Call& c) {
    const Attributes& a = c.attributes();
    const auto shape = c.in_shape(0);
    const TensorType& t = c.in_tensor(0);
    Dropout d;
    d.b = shape[0], d.s = shape[1], d.h = shape[2];
    d.sample_index = c.lists.samples(c.in_type(0), c.op.microbatch).device;
    d.position = c.lists.of(c.in_type(0), 1).device;
    d.channel_index = c.lists.of(c.in_type(0), 2).device;
    d.global_s = t.shape[1], d.global_h = t.shape[2];
    d.rate = a.rate;
    d.t = t.dtype;
    return [d, x = c.in[0], y = c.out[0], stream = a.stream, &k = c.kernels](const StepInputs& s) {
        Dropout now = d;
        now.key = random_key(s.seed, s.step, stream);
        k.dropout(now, x, y);
    };
}

Kernel bind_rotary(const Call& c) {
    const auto shape = c.in_shape(0);
    const Attributes& a = c.attributes();
    const Rotary r{shape[0], shape[1], shape[2], shape[3], c.lists.of(c.in_type(0), 1).device, a.base, a.inverse, c.in_tensor(0).dtype};
    return [=, x = c.in[0], y = c.out[0], &k = c.kernels](const StepInputs&) { k.rotary(r, x, y); };
}

// An activation function and its gradient, a factor, another element type: pointwise over all elements.
Kernel bind_pointwise(const Call& c) {
    const std::int64_t n = c.in_count(0);
    const auto t = c.in_tensor(0).dtype;
    const auto &in = c.in, &out = c.out;
    switch (c.op.kind) {
        case Kind::scale:
            return [=, x = in[0], y = out[0], factor = c.attributes().factor, &k = c.kernels](const StepInputs&) { k.scale(x, factor, y, n, t); };
        case Kind::gelu: return [=, x = in[0], y = out[0], &k = c.kernels](const StepInputs&) { k.gelu(x, y, n, t); };
        case Kind::gelu_dx: return [=, x = in[0], dy = in[1], dx = out[0], &k = c.kernels](const StepInputs&) { k.gelu_dx(x, dy, dx, n, t); };
        case Kind::swiglu: return [=, gate = in[0], up = in[1], y = out[0], &k = c.kernels](const StepInputs&) { k.swiglu(gate, up, y, n, t); };
        case Kind::swiglu_dx:
            return [=, gate = in[0], up = in[1], dy = in[2], dgate = out[0], dup = out[1], &k = c.kernels](const StepInputs&) {
                k.swiglu_dx(gate, up, dy, dgate, dup, n, t);
            };
        default: return [=, x = in[0], y = out[0], to = c.out_tensor(0).dtype, &k = c.kernels](const StepInputs&) { k.cast(x, t, y, to, n); };
    }
}

Kernel bind_logits(const Call& c) {
    const TensorType& t = c.in_tensor(0);
    Logits l;
    l.columns = c.in_shape(0)[2];
    l.tokens = c.in_count(0) / l.columns;
    l.first_column = first_index(c.program.grid(), t, 2, c.at);
    l.real_columns = std::clamp<std::int64_t>(c.attributes().vocab - l.first_column, 0, l.columns);
    l.t = t.dtype;
    const void* x = c.in[0];
    if (c.op.kind == Kind::logit_max) return [=, max = as<float>(c.out[0]), &k = c.kernels](const StepInputs&) { k.logit_max(l, x, max); };
    const auto* max = as<float>(c.in[1]);
    const auto* target = as<std::int32_t>(c.in[2]);
    if (c.op.kind == Kind::logit_sums)
        return [=, sums = as<float>(c.out[0]), &k = c.kernels](const StepInputs&) { k.logit_sums(l, x, max, target, sums); };
    return [=, dsums = as<float>(c.in[3]), dx = c.out[0], &k = c.kernels](const StepInputs&) { k.logit_sums_dx(l, x, max, target, dsums, dx); };
}

Kernel bind_token_loss(const Call& c) {
    const std::int64_t tokens = c.in_count(1);
    const auto* sums = as<float>(c.in[0]);
    const auto* mask = as<std::uint8_t>(c.in[1]);
    if (c.op.kind == Kind::token_loss_dx)
        return [=, loss = as<double>(c.in[2]), dsums = as<float>(c.out[0]), &k = c.kernels](const StepInputs&) {
            k.token_loss_dx(tokens, sums, mask, loss, dsums);
        };
    return [=, loss = as<double>(c.out[0]), adds = c.op.adds, &k = c.kernels](const StepInputs&) { k.token_loss(tokens, sums, mask, loss, adds); };
}

Kernel bind_count(const Call& c) {
    std::vector<MaskPart> masks;
    for (std::size_t i = 0; i < c.operands(); ++i) masks.push_back({as<std::uint8_t>(c.in[i]), c.in_count(i)});
    return [masks = std::move(masks), total = as<double>(c.out[0]), adds = c.op.adds, &k = c.kernels](const StepInputs&) {
        k.count(masks, total, adds);
    };
}

// Copies, zeroes, and numbers of the step.
Kernel bind_plain(const Call& c) {
    std::byte* const y = c.out[0];
    const std::int64_t count = c.out_count(0);
    const DType t = c.out_tensor(0).dtype;
    switch (c.op.kind) {
        case Kind::zero: return [=, &k = c.kernels](const StepInputs&) { k.zero(y, count * bytes_of(t)); };
        case Kind::copy: return [=, x = c.in[0], &k = c.kernels](const StepInputs&) { k.cast(x, t, y, t, count); };
        // Of no tokens: 0, so that a batch that counts none has loss and gradients 0.
        case Kind::reciprocal: return [x = as<double>(c.in[0]), y = as<double>(y), &k = c.kernels](const StepInputs&) { k.reciprocal(x, y); };
        case Kind::scale_loss:
            return [=, x = c.in[0], power = c.attributes().loss_scale, &k = c.kernels](const StepInputs& s) {
                k.scale(x, scaled(1.0, s, power), y, count, t);
            };
        default:
            return [sum = as<double>(c.in[0]), inverse = as<double>(c.in[1]), y = as<double>(y), &k = c.kernels](const StepInputs&) {
                k.multiply(sum, inverse, y);
            };
    }
}

}  // namespace

Kernel bind_kernel(const Call& c) {
    if (c.op.adds)  // the earlier versions of a sum stand where the new ones will
        for (std::size_t i = 0; i < c.out.size(); ++i)
            require(c.in[c.operands() + i] == c.out[i], "runtime: a running sum does not share its storage");
    switch (c.op.kind) {
        case Kind::matmul: case Kind::matmul_gelu: return bind_matmul(c);
        case Kind::add: case Kind::accumulate: return bind_add(c);
        case Kind::sum: return bind_sum(c);
        case Kind::embedding: case Kind::embedding_dw: return bind_embedding(c);
        case Kind::norm: case Kind::residual_norm: case Kind::norm_dx: case Kind::norm_dw: return bind_norm(c);
        case Kind::gelu: case Kind::gelu_dx: case Kind::swiglu: case Kind::swiglu_dx: case Kind::scale: case Kind::cast:
            return bind_pointwise(c);
        case Kind::dropout: return bind_dropout(c);
        case Kind::rotary: return bind_rotary(c);
        case Kind::attention: case Kind::attention_dx: return bind_attention(c);
        case Kind::logit_max: case Kind::logit_sums: case Kind::logit_sums_dx: return bind_logits(c);
        case Kind::token_loss: case Kind::token_loss_dx: return bind_token_loss(c);
        case Kind::count: return bind_count(c);
        case Kind::copy: case Kind::zero: case Kind::reciprocal: case Kind::scale_loss: case Kind::mean_loss: return bind_plain(c);
        case Kind::sum_squares: case Kind::adamw: case Kind::sgd: case Kind::join: return bind_flat(c);
        case Kind::compress: case Kind::decompress: case Kind::retain: return bind_packets(c);
        case Kind::redistribute: return bind_local(c);
        case Kind::load: return bind_load(c);
        case Kind::split: return {};
        case Kind::send: case Kind::recv: case Kind::move: break;
    }
    require(false, "runtime: an op that moves data was given to the compute queue");
    return {};
}

std::int64_t kernel_workspace(const Program& program, const Op& op, const Kernels& kernels) {
    switch (op.kind) {
        case Kind::attention: case Kind::attention_dx: return attention_workspace(program, op, kernels);
        case Kind::matmul: case Kind::matmul_gelu: return matmul_workspace(program, op, kernels);
        case Kind::norm_dw: return kernels.norm_dw_workspace(norm_of(program, op));
        case Kind::embedding_dw: return kernels.embedding_dw_workspace(embedding_of(program, op));
        case Kind::sum: return kernels.column_sum_workspace(column_sum_of(program, op).rows, column_sum_of(program, op).cols);
        case Kind::sum_squares: return sum_squares_workspace(program, op, kernels);
        case Kind::retain: return retain_workspace(program, op, kernels);
        default: return 0;
    }
}

}  // namespace quadrille
