#include "compile/bucket.hpp"

#include "ir/table.hpp"

#include <map>

namespace quadrille {
namespace {

// A unit's gradient on its way from Partial over the data axes to whole.
bool reduces_gradient(const Program& p, const Op& op) {
    if (op.kind != Kind::redistribute || op.queue != Queue::collective || op.inputs != 1) return false;
    const TensorType& t = p.type(p.inputs(op)[0]);
    if (t.book != Book::gradients || !t.covers) return false;
    const Change c = change(p, op);
    return c.pair == Pair::all_reduce && (data_axes | AxisSet(Axis::sp)).contains(c.axes);
}

}  // namespace

void bucket(Program& p, std::int64_t bucket_bytes) {
    const std::vector<Op> ops = std::move(p.ops);
    p.ops.clear();
    std::vector<Op> waiting;
    std::int64_t held = 0;
    const auto flush = [&] {
        if (waiting.size() == 1) p.ops.push_back(waiting[0]);
        if (waiting.size() > 1) {
            std::vector<TensorId> in, out;
            for (const Op& op : waiting) {
                in.push_back(p.inputs(op)[0]);
                out.push_back(p.outputs(op)[0]);
            }
            p.append(waiting.back(), in, out);
        }
        waiting.clear();
        held = 0;
    };
    std::size_t left = 0;
    for (const Op& op : ops) left += reduces_gradient(p, op);
    for (const Op& op : ops) {
        if (!reduces_gradient(p, op)) { p.ops.push_back(op); continue; }
        const std::int64_t bytes = local_bytes(p.grid(), p.type(p.inputs(op)[0]));
        const auto placement = [&](const Op& x) -> const Placement& { return p.type(p.inputs(x)[0]).place; };
        if (!waiting.empty() && (held + bytes > bucket_bytes || !(placement(waiting[0]) == placement(op)))) flush();
        waiting.push_back(op);
        held += bytes;
        if (--left == 0 || held >= bucket_bytes) flush();
    }
}

void overlap(Program& p, bool allowed) {
    const auto n = static_cast<std::int32_t>(p.ops.size());
    std::vector<std::int32_t> first_read(p.tensors.size(), n);
    std::map<int, std::vector<std::int32_t>> sends;  // by peer, latest first: the walk is backwards
    for (std::int32_t i = n; i-- > 0;) {
        Op& op = p.ops[static_cast<std::size_t>(i)];
        op.until = -1;
        if (allowed && op.queue != Queue::compute) {
            op.until = n;
            for (const TensorId t : p.outputs(op)) op.until = std::min(op.until, first_read[static_cast<std::size_t>(t)]);
            if (op.kind == Kind::send) {
                auto& later = sends[p.attributes(op).peer];
                op.until = later.size() >= 2 ? later[later.size() - 2] : n;
                later.push_back(i);
            }
            if (op.until == i + 1) op.until = -1;  // read at once: nothing to overlap with
        }
        for (const TensorId t : p.inputs(op)) first_read[static_cast<std::size_t>(t)] = i;
    }
}

}  // namespace quadrille
