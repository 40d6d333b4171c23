#include "plan/costs.hpp"

#include "ir/table.hpp"

#include <unordered_map>

namespace quadrille {
namespace {

double product(const std::array<std::int64_t, max_dims>& shape) {
    double n = 1;
    for (const std::int64_t x : shape) n *= static_cast<double>(x);
    return n;
}

// 2 m n k: every letter of the product once.
double matmul_flops(const Program& p, const Op& op) {
    const Signature s = parse_signature(p.attributes(op).signature);
    const Grid& grid = p.grid();
    const TensorType &a = p.type(p.inputs(op)[0]), &b = p.type(p.inputs(op)[1]);
    double n = 2 * product(local_shape(grid, a));
    const auto shape = local_shape(grid, b);
    for (std::size_t d = 0; d < s.in[1].size(); ++d)
        if (s.in[0].find(s.in[1][d]) == std::string::npos) n *= static_cast<double>(shape[d]);
    return n;
}

// Scores and their use: 4 b n s t d forward, 10 backward (the scores are made again). Of the pairs of positions, causality leaves (s+1)/2s;
// a turn of a ring has its share of that, which evens out over the turns.
double attention_flops(const Program& p, const Op& op) {
    const TensorType &q = p.type(p.inputs(op)[0]), &k = p.type(p.inputs(op)[1]);
    const auto shape = local_shape(p.grid(), q);
    const auto s = static_cast<double>(q.shape[1]);
    const double causal = (s + 1) / (2 * s);
    return (op.kind == Kind::attention ? 4.0 : 10.0) * product(shape) * static_cast<double>(local_shape(p.grid(), k)[1]) * causal;
}

// How many of `count` elements member i of n owns where an all-reduce cuts them in nearly equal runs.
std::int64_t slice_elements(std::int64_t count, std::int64_t n, std::int64_t i) { return count / n * (i + 1) + count % n * (i + 1) / n - (count / n * i + count % n * i / n); }

std::int64_t redistribute_bytes(const Program& p, const Op& op, const Coordinate& at) {
    const Placement& to = p.tables->type(p.attributes(op).types[0]).place;
    const Change c = change(p.type(p.inputs(op)[0]), to);
    const Grid& grid = p.grid();
    std::int64_t n = grid.size(c.axes), me = grid.position(at, c.axes);
    if (c.axes.has(Axis::pp) && to.holders == Holders::ends) {
        n = n / grid.extent(Axis::pp) * 2;
        Coordinate first = at;
        first[Axis::pp] = 0;  // the two ends are the outermost positions of the group
        me = grid.position(first, c.axes) + (at[Axis::pp] == 0 ? 0 : n / 2);
    }
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < op.inputs; ++i) {
        const TensorType& x = p.type(p.inputs(op)[i]);
        const std::int64_t size = bytes_of(x.dtype), in = local_count(grid, x), out = local_count(grid, p.type(p.outputs(op)[i]));
        switch (c.pair) {
            case Pair::all_reduce: {
                const std::int64_t mine = slice_elements(in, n, me);
                bytes += size * (in - mine + mine * (n - 1));
                break;
            }
            case Pair::reduce_scatter: bytes += size * (in - out); break;
            case Pair::all_gather: bytes += size * in * (n - 1); break;
            case Pair::all_to_all: bytes += size * (in - in / n); break;
            case Pair::ring_shift: bytes += size * in; break;
            case Pair::slice:
            case Pair::first_keeps: break;
        }
    }
    return bytes;
}

}  // namespace

double model_flops(const Config& config) {
    const ModelConfig& m = config.model;
    const auto d = [](std::int64_t x) { return static_cast<double>(x); };
    const double attention = 2 * d(m.hidden_size) * d(m.head_dim) * (2 * d(m.num_attention_heads) + 2 * d(m.num_key_value_heads));
    const double scores = 4 * d(m.seq_length) * d(m.num_attention_heads) * d(m.head_dim);
    const double mlp = 2 * d(m.hidden_size) * d(m.ffn_hidden_size) * (m.activation == Activation::swiglu ? 3 : 2);
    const double forward = d(m.num_layers) * (attention + scores + mlp) + 2 * d(m.hidden_size) * d(m.vocab_size);  // per token
    return 3 * forward * d(config.train.global_batch_size) * d(m.seq_length);
}

double flops(const Program& p, const Op& op) {
    switch (op.kind) {
        case Kind::matmul:
        case Kind::matmul_gelu: return matmul_flops(p, op);
        case Kind::attention:
        case Kind::attention_dx: return attention_flops(p, op);
        default: return 0;
    }
}

double hardware_flops(const Compiled& c, const Grid& grid) {
    const double ranks = static_cast<double>(grid.ranks() / grid.extent(Axis::pp));  // that share a program
    std::unordered_map<std::uint64_t, double> known;                                  // by attributes and operand types: microbatches repeat
    double total = 0;
    for (const Program& p : c.programs)
        for (const Op& op : p.ops) {
            if (op.kind != Kind::matmul && op.kind != Kind::matmul_gelu && op.kind != Kind::attention && op.kind != Kind::attention_dx) continue;
            const auto type = [&](std::size_t i) { return static_cast<std::uint64_t>(p.tensors[static_cast<std::size_t>(p.inputs(op)[i])].type); };
            const std::uint64_t key = (type(0) << 40) ^ (type(1) << 20) ^ static_cast<std::uint64_t>(op.attributes) ^ (static_cast<std::uint64_t>(op.kind) << 58);
            const auto [it, fresh] = known.try_emplace(key, 0);
            if (fresh) it->second = flops(p, op);
            total += it->second * ranks;
        }
    return total;
}

std::map<std::string, std::int64_t> wire_bytes(const Program& p, const Coordinate& at) {
    std::map<std::string, std::int64_t> out;
    for (const Op& op : p.ops) {
        if (op.kind == Kind::send) out[wire_name(p.grid(), Axis::pp)] += local_bytes(p.grid(), p.type(p.inputs(op)[0]));
        if (op.kind == Kind::recv) out[wire_name(p.grid(), Axis::pp)] += 0;
        if (op.kind != Kind::redistribute || op.queue != Queue::collective) continue;
        out[wire_name(p.grid(), change(p.type(p.inputs(op)[0]), p.tables->type(p.attributes(op).types[0]).place).axes)] += redistribute_bytes(p, op, at);
    }
    return out;
}

}  // namespace quadrille
