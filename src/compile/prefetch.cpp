#include "compile/prefetch.hpp"

#include "compile/fetch.hpp"

#include <algorithm>
#include <map>

namespace quadrille {
namespace {

// What an op does for others' sake.
enum class Role : std::uint8_t { work, fetch, store };

// A move between tiers stores if it brings something home; one that brings a copy to where it is read fetches, and what goes on the way does what
// the next part of the way does.
std::vector<Role> roles_of(const Program& p) {
    std::vector<Role> roles(p.ops.size(), Role::work);
    std::vector<std::size_t> reader(p.tensors.size(), p.ops.size());
    for (std::size_t i = p.ops.size(); i-- > 0;) {
        const Op& op = p.ops[i];
        if (op.kind == Kind::move) {
            const TensorId t = p.outputs(op)[0];
            const Buffer& b = p.buffers[static_cast<std::size_t>(p.tensors[static_cast<std::size_t>(t)].buffer)];
            const std::size_t next = reader[static_cast<std::size_t>(t)];
            const bool home = b.persistent || (b.tier != Tier::device && b.book != Book::buffers);
            const bool on_the_way = next < p.ops.size() && roles[next] == Role::store && b.tier != Tier::device;
            roles[i] = home || on_the_way ? Role::store : Role::fetch;
        } else if (gathers_for_use(p, op)) {
            roles[i] = Role::fetch;
        }
        for (const TensorId t : p.inputs(op)) reader[static_cast<std::size_t>(t)] = i;
    }
    return roles;
}

// The stretch of work that each op belongs to: ops of one unit and action that follow each other. Messages between stages, and what the step
// does as a whole in between (reductions), belong to the stretch around them, and at its end (updates) each unit's ops are one.
std::vector<std::int32_t> stretches_of(const Program& p) {
    std::size_t end = p.ops.size();
    while (end > 0 && p.ops[end - 1].action < 0) --end;
    std::vector<std::int32_t> out(p.ops.size(), 0);
    NameId unit = -1;
    std::int32_t action = -1, number = -1;
    for (std::size_t i = 0; i < p.ops.size(); ++i) {
        const Op& op = p.ops[i];
        if ((op.action >= 0 || i >= end) && op.queue != Queue::stage && (number < 0 || op.unit != unit || op.action != action)) {
            unit = op.unit;
            action = op.action;
            ++number;
        }
        out[i] = std::max(number, 0);
    }
    return out;
}

// By tensor, the op that makes it, -1 for none; by op, the first that reads a result of it.
std::vector<std::int64_t> makers(const Program& p) {
    std::vector<std::int64_t> maker(p.tensors.size(), -1);
    for (std::size_t i = 0; i < p.ops.size(); ++i)
        for (const TensorId t : p.outputs(p.ops[i])) maker[static_cast<std::size_t>(t)] = static_cast<std::int64_t>(i);
    return maker;
}

std::vector<std::size_t> first_readers(const Program& p, const std::vector<std::int64_t>& maker) {
    std::vector<std::size_t> use(p.ops.size(), p.ops.size());
    for (std::size_t i = p.ops.size(); i-- > 0;)
        for (const TensorId t : p.inputs(p.ops[i]))
            if (maker[static_cast<std::size_t>(t)] >= 0) use[static_cast<std::size_t>(maker[static_cast<std::size_t>(t)])] = i;
    return use;
}

// Of the fetches on one queue.
void issue_early(Program& p, int depth, Queue queue) {
    const std::vector<Role> roles = roles_of(p);
    const std::vector<std::int32_t> stretch = stretches_of(p);
    const std::vector<std::int64_t> maker = makers(p);
    const std::vector<std::size_t> use = first_readers(p, maker);
    std::vector<std::size_t> begins;  // by stretch
    for (std::size_t i = 0; i < p.ops.size(); ++i)
        if (static_cast<std::size_t>(stretch[i]) == begins.size()) begins.push_back(i);
    std::vector<std::vector<std::size_t>> before(p.ops.size());  // op -> moves to issue in front of it
    std::vector<bool> moved(p.ops.size(), false);
    for (std::size_t i = 0; i < p.ops.size(); ++i) {
        if (roles[i] != Role::fetch || p.ops[i].queue != queue || use[i] == p.ops.size()) continue;
        const std::int32_t from = stretch[use[i]] - depth;
        const std::size_t wanted = from <= 0 ? 0 : begins[static_cast<std::size_t>(from)];
        const auto made = static_cast<std::size_t>(maker[static_cast<std::size_t>(p.inputs(p.ops[i])[0])] + 1);
        before[std::min(i, std::max(wanted, made))].push_back(i);
        moved[i] = true;
    }
    const std::vector<Op> ops = std::move(p.ops);
    p.ops.clear();
    for (std::size_t i = 0; i < ops.size(); ++i) {
        for (const std::size_t k : before[i]) p.ops.push_back(ops[k]);
        if (!moved[i]) p.ops.push_back(ops[i]);
    }
}

// The op before which `op`, the i-th, must have what it reads. Another move may be issued behind the one that brings it.
std::int32_t needed_before(const Op& op, std::int32_t i) { return op.until >= 0 ? op.until : i; }

// For every store, the first store on its queue of the second stretch after its own that has any.
std::vector<std::int32_t> second_next_store(const Program& p) {
    const auto n = static_cast<std::int32_t>(p.ops.size());
    const std::vector<Role> roles = roles_of(p);
    const std::vector<std::int32_t> stretch = stretches_of(p);
    std::vector<std::int32_t> out(p.ops.size(), n);
    std::map<Queue, std::vector<std::vector<std::int32_t>>> lanes;  // stores, stretch by stretch
    for (std::int32_t i = 0; i < n; ++i) {
        if (roles[static_cast<std::size_t>(i)] != Role::store) continue;
        auto& lane = lanes[p.ops[static_cast<std::size_t>(i)].queue];
        if (lane.empty() || stretch[static_cast<std::size_t>(lane.back().back())] != stretch[static_cast<std::size_t>(i)]) {
            lane.emplace_back();
            if (lane.size() > 2)
                for (const std::int32_t k : lane[lane.size() - 3]) out[static_cast<std::size_t>(k)] = i;
        }
        lane.back().push_back(i);
    }
    return out;
}

// A reduction from a whole gradient, in memory for that alone, to this rank's slice of it.
bool scatters_whole(const Program& p, const Op& op) {
    if (op.kind != Kind::redistribute || op.queue != Queue::collective || p.buffer(p.inputs(op)[0]).persistent) return false;
    if (p.type(p.inputs(op)[0]).dims != 1 || change_of(p, op).pair != Pair::reduce_scatter) return false;
    return p.tensors[static_cast<std::size_t>(p.inputs(op)[0])].buffer != p.tensors[static_cast<std::size_t>(p.outputs(op)[0])].buffer;
}

}  // namespace

void prefetch(Program& p, int depth) {
    if (depth == 0) return;
    for (const Queue queue : {Queue::disk, Queue::copy_out, Queue::copy_in, Queue::collective}) issue_early(p, depth, queue);
}

void postpone(Program& p) {
    const std::vector<Op> ops = std::move(p.ops);
    p.ops.clear();
    std::vector<Op> later;
    std::vector<bool> in_flight(p.tensors.size(), false), pending(p.tensors.size(), false);  // made by a move; by an op that is put later
    const auto any = [&](std::span<const TensorId> in, const std::vector<bool>& of) {
        return std::any_of(in.begin(), in.end(), [&](TensorId t) { return of[static_cast<std::size_t>(t)]; });
    };
    // Of what a reduction may be waiting to bring: a residual that comes from another tier is none of that.
    const auto reduced = [&](const Op& op) { return op.kind == Kind::compress ? p.inputs(op).first(1) : p.inputs(op); };
    const auto release = [&] {
        for (const Op& op : later) {
            for (const TensorId t : p.outputs(op)) pending[static_cast<std::size_t>(t)] = false;
            p.ops.push_back(op);
        }
        later.clear();
    };
    for (const Op& op : ops) {
        const bool reduction = moves_flat(p, op), behind = any(p.inputs(op), pending);
        const bool waits = (behind || any(reduced(op), in_flight)) && (reduction || settles(op));
        for (const TensorId t : p.outputs(op)) in_flight[static_cast<std::size_t>(t)] = op.queue != Queue::compute && op.part == Part::step;
        if (waits || (behind && adds_squares(p, op))) {
            later.push_back(op);
            for (const TensorId t : p.outputs(op)) pending[static_cast<std::size_t>(t)] = true;
            continue;
        }
        if (reduction || behind) release();
        p.ops.push_back(op);
    }
    release();
}

void overlap(Program& p, bool allowed) {
    const auto n = static_cast<std::int32_t>(p.ops.size());
    const std::vector<std::int32_t> stored = second_next_store(p);
    std::int32_t next_scatter = n;
    std::vector<std::int32_t> first_read(p.tensors.size(), n), next_write(p.buffers.size(), n);
    const auto buffer = [&](TensorId t) { return static_cast<std::size_t>(p.tensor(t).buffer); };
    std::map<int, std::vector<std::int32_t>> sends;  // by peer, latest first: the walk is backwards
    for (std::int32_t i = n; i-- > 0;) {
        Op& op = p.ops[static_cast<std::size_t>(i)];
        op.until = -1;
        if (allowed && op.queue != Queue::compute) {
            op.until = scatters_whole(p, op) ? next_scatter : stored[static_cast<std::size_t>(i)];
            for (const TensorId t : p.outputs(op)) op.until = std::min(op.until, first_read[static_cast<std::size_t>(t)]);
            for (const TensorId t : p.inputs(op)) op.until = std::min(op.until, next_write[buffer(t)]);  // what it takes away may be replaced later
            if (op.kind == Kind::send) {
                auto& later = sends[p.attributes(op).peer];
                op.until = later.size() >= 2 ? later[later.size() - 2] : n;
                later.push_back(i);
            }
            if (op.until == i + 1) op.until = -1;  // read at once: nothing to overlap with
        }
        if (scatters_whole(p, op)) next_scatter = i;
        for (const TensorId t : p.outputs(op))
            if (p.buffers[buffer(t)].persistent) next_write[buffer(t)] = i;
        for (const TensorId t : p.inputs(op)) {
            std::int32_t& first = first_read[static_cast<std::size_t>(t)];
            first = std::min(first, needed_before(op, i));
        }
    }
}

}  // namespace quadrille
