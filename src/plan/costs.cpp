#include "plan/costs.hpp"

#include "config/lora.hpp"
#include "ir/table.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace quadrille {
namespace {

double product(const std::array<std::int64_t, max_dims>& shape) {
    double n = 1;
    for (const std::int64_t x : shape) n *= static_cast<double>(x);
    return n;
}

bool has_flops(Kind k) { return k == Kind::matmul || k == Kind::matmul_gelu || k == Kind::attention || k == Kind::attention_dx; }

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

// How many take part in a move over `axes`, and which of them the rank at `at` is. pp is the slowest axis of a group, so a coordinate's place
// among the members comes first.
struct Member { std::int64_t of, i; };
Member member(const Grid& grid, AxisSet axes, Holders holders, const Coordinate& at) {
    if (!axes.has(Axis::pp)) return {grid.size(axes), grid.position(at, axes)};
    const std::vector<int> coordinates = pp_members(grid, holders);
    const AxisSet inner = axes - Axis::pp;
    const auto here = std::find(coordinates.begin(), coordinates.end(), at[Axis::pp]) - coordinates.begin();
    return {std::ssize(coordinates) * grid.size(inner), here * grid.size(inner) + grid.position(at, inner)};
}

MoveCost redistribute_cost(const Program& p, const Op& op, const Coordinate& at) {
    const Change c = change(p, op);
    const Grid& grid = p.grid();
    const auto [n, me] = member(grid, c.axes, p.destination(op).holders, at);
    std::int64_t bytes = 0, hops = 0;
    for (std::size_t i = 0; i < op.inputs; ++i) {
        const TensorType& x = p.type(p.inputs(op)[i]);
        const std::int64_t size = bytes_of(x.dtype), in = local_count(grid, x), out = local_count(grid, p.type(p.outputs(op)[i]));
        switch (c.pair) {
            case Pair::all_reduce: {
                const std::int64_t mine = equal_cut(in, n, me).count;
                bytes += size * (in - mine + mine * (n - 1));
                hops = 2 * (n - 1);
                break;
            }
            case Pair::reduce_scatter: bytes += size * (in - out), hops = n - 1; break;
            case Pair::all_gather: bytes += size * in * (n - 1), hops = n - 1; break;
            case Pair::all_to_all: bytes += size * (in - in / n), hops = n - 1; break;
            case Pair::ring_shift: bytes += size * in, hops = 1; break;
            case Pair::slice:
            case Pair::first_keeps: break;
        }
    }
    return {c.axes, bytes, hops};
}

}  // namespace

MoveCost move_cost(const Program& p, const Op& op, const Coordinate& at) {
    if (op.kind == Kind::send) return {Axis::pp, local_bytes(p.grid(), p.type(p.inputs(op)[0])), 1};
    if (op.kind == Kind::recv) return {Axis::pp, 0, 0};  // the sender's bytes, but a wire of this rank too
    return redistribute_cost(p, op, at);
}

double model_flops(const Config& config) {
    const ModelConfig& m = config.model;
    const LoraConfig& lora = config.lora;
    const auto d = [](std::int64_t x) { return static_cast<double>(x); };
    const double scores = 4 * d(m.seq_length) * d(m.num_attention_heads) * d(m.head_dim);
    double per_token = 0;
    bool gradients = !lora.on();  // of the activations from here on
    for (std::int64_t layer = 0; layer < m.num_layers; ++layer) {
        double matrices = 0, adapters = 0;
        for (const LinearMatrix& x : linear_matrices(m, layer)) {
            matrices += 2 * d(x.out) * d(x.in);
            if (is_target(lora, x.name)) adapters += 2 * d(x.adapter(lora.rank));
        }
        gradients = gradients || adapters > 0;
        per_token += (gradients ? lora.on() ? 2 : 3 : 1) * matrices + (gradients ? 3 : 1) * scores + 3 * adapters;
    }
    per_token += (lora.on() ? 2 : 3) * 2 * d(m.hidden_size) * d(m.vocab_size);
    return per_token * d(config.train.global_batch_size) * d(m.seq_length);
}

double flops(const Program& p, const Op& op) {
    if (!has_flops(op.kind)) return 0;
    return op.kind == Kind::attention || op.kind == Kind::attention_dx ? attention_flops(p, op) : matmul_flops(p, op);
}

double hardware_flops(const Compiled& c, const Grid& grid) {
    const double ranks = static_cast<double>(grid.ranks() / grid.extent(Axis::pp));  // that share a program
    std::map<std::tuple<Kind, AttributesId, TypeId, TypeId>, double> known;           // microbatches repeat
    double total = 0;
    for (const Program& p : c.programs)
        for (const Op& op : p.ops) {
            if (!has_flops(op.kind)) continue;
            const auto in = p.inputs(op);
            const auto [it, fresh] = known.try_emplace({op.kind, op.attributes, p.tensor(in[0]).type, p.tensor(in[1]).type}, 0);
            if (fresh) it->second = flops(p, op);
            total += it->second * ranks;
        }
    return total;
}

std::vector<ActionCosts> chunk_costs(const Compiled& c) {
    std::size_t chunks = 0;
    for (const Order& o : c.orders)
        for (const Action& a : o) chunks = std::max(chunks, static_cast<std::size_t>(a.chunk) + 1);
    std::vector<ActionCosts> costs(chunks, ActionCosts{0, 0, 0});
    for (const Program& p : c.programs) {
        const Order& order = c.orders[static_cast<std::size_t>(p.coordinate)];
        for (const Op& op : p.ops) {
            if (op.action < 0 || op.microbatch != 0) continue;
            ActionCosts& cost = costs[static_cast<std::size_t>(order[static_cast<std::size_t>(op.action)].chunk)];
            const double n = flops(p, op);
            if (op.part == Part::forward) cost.forward += n;
            if (op.part == Part::backward_input) cost.backward_input += n;
            if (op.part == Part::backward_weight) cost.backward_weight += n;
        }
    }
    return costs;
}

std::map<std::string, std::int64_t> wire_bytes(const Program& p, const Coordinate& at) {
    std::map<std::string, std::int64_t> out;
    for (const Op& op : p.ops) {
        if (!moves_between_ranks(op)) continue;
        const MoveCost cost = move_cost(p, op, at);
        out[wire_name(p.grid(), cost.axes)] += cost.bytes;
    }
    return out;
}

std::map<std::string, std::int64_t> uncompressed_wire_bytes(const Program& p, const Coordinate& at) {
    std::map<std::string, std::int64_t> out = wire_bytes(p, at);
    for (const Op& op : p.ops) {
        if (op.kind != Kind::compress) continue;
        const std::int64_t ranks = p.grid().size(p.attributes(op).over);
        const auto to_others = [&](std::int64_t bytes) { return bytes - bytes / ranks; };
        out[wire_name(p.grid(), p.attributes(op).over)] +=
            to_others(local_bytes(p.grid(), p.type(p.inputs(op)[0]))) - to_others(local_bytes(p.grid(), p.type(p.outputs(op)[0])));
    }
    return out;
}

std::map<Queue, std::int64_t> tier_bytes(const Program& p) {
    std::map<Queue, std::int64_t> out;
    for (const Op& op : p.ops)
        if (op.kind == Kind::move) out[op.queue] += local_bytes(p.grid(), p.type(p.inputs(op)[0]));
    return out;
}

double step_cost(const Compiled& c) {
    const Grid& grid = c.tables->grid();
    double most = 0;
    for (const Program& p : c.programs) {
        Coordinate first;
        first[Axis::pp] = p.coordinate;
        double bytes = 0;
        for (const auto& [axes, n] : wire_bytes(p, first)) bytes += static_cast<double>(n);
        for (const auto& [queue, n] : tier_bytes(p)) bytes += static_cast<double>(n) * (queue == Queue::disk ? disk_penalty : 1);
        most = std::max(most, bytes);
    }
    const double busy = 1 - simulate(c.orders, chunk_costs(c)).bubble_fraction;
    return hardware_flops(c, grid) / static_cast<double>(grid.ranks()) / busy + flops_per_byte * most;
}

}  // namespace quadrille
