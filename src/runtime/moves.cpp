#include "runtime/moves.hpp"

#include "base/error.hpp"
#include "ir/table.hpp"

namespace quadrille {
namespace {

using Runs = std::array<Extents, max_dims>;

Runs runs_of(const Grid& grid, const TensorType& t, const Coordinate& at) {
    Runs out;
    for (int d = 0; d < t.dims; ++d) out[static_cast<std::size_t>(d)] = index_runs(grid, t, d, at);
    return out;
}

// The elements of `part` in a row-major buffer over `whole`: the product, dim by dim, of their positions along each.
Slice locate(const Runs& whole, const Runs& part, int dims) {
    Slice inner = {{0, 1}};
    std::int64_t size = 1;  // of the buffer below this dim
    for (int d = dims - 1; d >= 0; --d) {
        const auto i = static_cast<std::size_t>(d);
        const bool solid = inner.size() == 1 && inner[0].offset == 0 && inner[0].count == size;
        Slice outer;
        for (const Extent& r : positions_in(whole[i], part[i])) {
            if (solid) { append(outer, {r.offset * size, r.count * size}); continue; }
            for (std::int64_t k = r.offset; k < r.offset + r.count; ++k)
                for (const Extent& e : inner) append(outer, {k * size + e.offset, e.count});
        }
        inner = std::move(outer);
        size *= total(whole[i]);
    }
    return inner;
}

Runs common(const Runs& a, const Runs& b) {
    Runs out;
    for (std::size_t d = 0; d < max_dims; ++d) out[d] = intersection(a[d], b[d]);
    return out;
}

// Slices that are what the Engine would cut by itself are not spelled out, so that several tensors may travel together.
void drop_if_equal(std::vector<Slice>& slices, std::int64_t count) {
    const auto n = static_cast<std::int64_t>(slices.size());
    for (std::int64_t i = 0; i < n; ++i) {
        if (slices[static_cast<std::size_t>(i)] != Slice{equal_cut(count, n, i)}) return;
    }
    slices.clear();
}

struct Between {
    const Grid& grid;
    const TensorType &from, &to;
    const Coordinate& at;
};

// Fills kind, slices and the segment's count of one tensor's move.
void plan_pair(const Between& b, Pair pair, const std::vector<int>& members, Move& m, std::int64_t& count) {
    const bool scatters = pair == Pair::reduce_scatter || pair == Pair::all_to_all, gathers = pair == Pair::all_gather || pair == Pair::all_to_all;
    const Runs from = runs_of(b.grid, b.from, b.at), to = runs_of(b.grid, b.to, b.at);
    for (const int member : members) {
        const Coordinate there = b.grid.coordinate(member);
        if (scatters) {
            const Runs theirs = runs_of(b.grid, b.to, there);
            m.in_slices.push_back(locate(from, pair == Pair::all_to_all ? common(from, theirs) : theirs, b.from.dims));
        }
        if (gathers) {
            const Runs theirs = runs_of(b.grid, b.from, there);
            m.out_slices.push_back(locate(to, pair == Pair::all_to_all ? common(theirs, to) : theirs, b.from.dims));
        }
    }
    count = local_count(b.grid, pair == Pair::all_gather ? b.to : b.from);
    drop_if_equal(m.in_slices, count);
    drop_if_equal(m.out_slices, count);
}

MoveKind kind_of(Pair p) {
    switch (p) {
        case Pair::all_reduce: return MoveKind::all_reduce;
        case Pair::reduce_scatter: return MoveKind::reduce_scatter;
        case Pair::all_gather: return MoveKind::all_gather;
        case Pair::all_to_all: return MoveKind::all_to_all;
        case Pair::ring_shift: return MoveKind::ring_shift;
        case Pair::slice: case Pair::first_keeps: break;
    }
    require(false, "runtime: a move without messages was given to the engine");
    return MoveKind::all_reduce;
}

// One place on: the coordinate's neighbour has the piece of turn j next, as turn j + 1 (the last one comes home as turn 0).
void check_turn(const Grid& grid, const TensorType& from, const TensorType& to, const Change& c) {
    const auto d = static_cast<std::size_t>(c.from_dim);
    for (std::size_t i = 0; i < from.place.cuts[d].count; ++i) {
        const Cut &a = from.place.cuts[d].cut[i], &b = to.place.cuts[d].cut[i];
        const int n = grid.extent(a.axis);
        require(a == b || ((b.turn - a.turn) % n + n) % n == 1, "runtime: a ring goes one place at a time");
    }
}

Move plan_message(const Program& program, const Op& op, const Coordinate& at) {
    const Attributes& a = program.attributes(op);
    const TensorId t = op.kind == Kind::send ? program.inputs(op)[0] : program.outputs(op)[0];
    Move m;
    m.kind = op.kind == Kind::send ? MoveKind::send : MoveKind::receive;
    m.dtype = program.type(t).dtype;
    m.segments.push_back({nullptr, nullptr, local_count(program.grid(), program.type(t))});
    Coordinate there = at;
    there[Axis::pp] = a.peer;
    m.peer = static_cast<int>(program.grid().rank(there));
    m.message = {a.gradient ? 1 : 0, a.chunk, op.microbatch};
    return m;
}

}  // namespace

AxisSet axes_of(const Program& program, const Op& op) { return op.kind == Kind::redistribute ? change(program, op).axes : AxisSet(Axis::pp); }

std::vector<int> members_of(const Program& program, const Op& op, const Coordinate& at) {
    const std::vector<int> along_pp = pp_members(program.grid(), program.destination(op).holders);
    const std::vector<std::int64_t> ranks = program.grid().group(at, axes_of(program, op), along_pp);
    return {ranks.begin(), ranks.end()};
}

MovePlan plan_move(const Program& program, const Op& op, const Coordinate& at) {
    const Grid& grid = program.grid();
    MovePlan plan;
    plan.axes = axes_of(program, op);
    if (op.kind != Kind::redistribute) {
        plan.move = plan_message(program, op, at);
        return plan;
    }
    const auto inputs = program.inputs(op), outputs = program.outputs(op);
    const Change moved = change(program, op);
    plan.members = members_of(program, op, at);
    Move& m = plan.move;
    m.kind = kind_of(moved.pair);
    m.op = moved.max ? ReduceOp::max : ReduceOp::sum;
    m.dtype = program.type(inputs[0]).dtype;
    m.priority = (plan.axes & data_axes).empty() ? Priority::urgent : Priority::bulk;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        const TensorType &from = program.type(inputs[i]), &to = program.type(outputs[i]);
        require(from.dtype == m.dtype, "runtime: tensors of one move have different element types");
        if (moved.pair == Pair::ring_shift) check_turn(grid, from, to, moved);
        Move one;
        std::int64_t count = local_count(grid, from);
        if (moved.pair != Pair::all_reduce && moved.pair != Pair::ring_shift) plan_pair({grid, from, to, at}, moved.pair, plan.members, one, count);
        m.segments.push_back({nullptr, nullptr, count});
        m.in_slices.insert(m.in_slices.end(), one.in_slices.begin(), one.in_slices.end());
        m.out_slices.insert(m.out_slices.end(), one.out_slices.begin(), one.out_slices.end());
    }
    require(m.segments.size() == 1 || (m.in_slices.empty() && m.out_slices.empty()), "runtime: several tensors of one move are cut unevenly");
    return plan;
}

LocalMove plan_local(const Program& program, const Op& op, const Coordinate& at) {
    const TensorType &from = program.type(program.inputs(op)[0]), &to = program.type(program.outputs(op)[0]);
    const Change c = change(program, op);
    LocalMove local;
    if (c.pair == Pair::slice) local.mine = slice_of(program.grid(), from, at, to, at);
    for (const Axis a : c.axes.list()) local.keeps = local.keeps && at[a] == 0;
    return local;
}

Slice slice_of(const Grid& grid, const TensorType& whole, const Coordinate& whole_at, const TensorType& part, const Coordinate& part_at) {
    return locate(runs_of(grid, whole, whole_at), runs_of(grid, part, part_at), whole.dims);
}

}  // namespace quadrille
