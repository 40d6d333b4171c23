// Each move's description, run by a plain loop over all ranks' buffers: what arrives is what the types say.
#include "runtime/moves.hpp"

#include <doctest.h>

#include <algorithm>
#include <memory>
#include <numeric>

using namespace quadrille;

namespace {

const Grid grid = Grid::of_user_axes(2, 4, 2, 2, 2, 2, {"tp", "sp", "dp", "pp"});
const Cuts sp_zigzag = Cuts::along(grid, Axis::sp, Layout::zigzag), sp = Cuts::along(grid, Axis::sp);
const Cuts tp = Cuts::along(grid, tensor_axes), dp = Cuts::along(grid, data_axes), none;

Placement place(std::initializer_list<Cuts> cuts) {
    Placement p;
    std::size_t d = 0;
    for (const Cuts& c : cuts) p.cuts[d++] = c;
    return p;
}

using Buffer_ = std::vector<double>;

// The local buffer of a tensor whose global element i has value i + 1; a Partial one is split over the ranks by weights that sum to 1.
Buffer_ local(const TensorType& t, const Coordinate& c) {
    Buffer_ out;
    double weight = 1;
    if (!t.place.partial_sum.empty()) {
        const auto n = static_cast<double>(grid.size(t.place.partial_sum)), i = static_cast<double>(grid.position(c, t.place.partial_sum));
        weight = 2 * (i + 1) / (n * (n + 1));
    }
    if (!t.place.partial_max.empty()) weight = grid.position(c, t.place.partial_max) == 1 ? 1 : -1;
    for (const Extent& e : slice_of(grid, t.placed({}), c, t, c))
        for (std::int64_t i = e.offset; i < e.offset + e.count; ++i) out.push_back(weight * static_cast<double>(i + 1));
    return out;
}

std::vector<Slice> spelled(const std::vector<Slice>& slices, std::int64_t count, std::size_t n) {
    if (!slices.empty()) return slices;
    std::vector<Slice> out;
    for (std::size_t i = 0; i < n; ++i) out.push_back({equal_cut(count, static_cast<std::int64_t>(n), static_cast<std::int64_t>(i))});
    return out;
}

Buffer_ picked(const Buffer_& from, const Slice& s) {
    Buffer_ out;
    for (const Extent& e : s) out.insert(out.end(), from.begin() + e.offset, from.begin() + e.offset + e.count);
    return out;
}

void put(Buffer_& to, const Slice& s, const Buffer_& values) {
    std::size_t at = 0;
    for (const Extent& e : s)
        for (std::int64_t i = e.offset; i < e.offset + e.count; ++i) to[static_cast<std::size_t>(i)] = values.at(at++);
    CHECK(at == values.size());
}

// What a rank has after the move, from what its group had before.
Buffer_ moved(const Program& p, const Op& op, const Coordinate& c) {
    const TensorType &from = p.type(p.inputs(op)[0]), &to = p.type(p.outputs(op)[0]);
    const MovePlan plan = plan_move(p, op, c);
    const auto own = std::find(plan.members.begin(), plan.members.end(), static_cast<int>(grid.rank(c)));
    const std::size_t n = plan.members.size(), me = static_cast<std::size_t>(own - plan.members.begin());
    REQUIRE(me < n);
    Buffer_ out(static_cast<std::size_t>(local_count(grid, to)), -1e9);
    Buffer_ sum(static_cast<std::size_t>(local_count(grid, from)), plan.move.op == ReduceOp::sum ? 0.0 : -1e30);
    for (std::size_t j = 0; j < n; ++j) {
        const Coordinate there = grid.coordinate(plan.members[j]);
        const Buffer_ theirs = local(from, there);
        const MovePlan their_plan = plan_move(p, op, there);
        CHECK(their_plan.members == plan.members);
        const std::int64_t count = plan.move.segments[0].count;
        switch (plan.move.kind) {
            case MoveKind::all_gather: put(out, spelled(plan.move.out_slices, count, n)[j], theirs); break;
            case MoveKind::all_to_all:
                put(out, spelled(plan.move.out_slices, count, n)[j], picked(theirs, spelled(their_plan.move.in_slices, count, n)[me]));
                break;
            case MoveKind::ring_shift: if ((j + 1) % n == me) out = theirs; break;
            default:
                for (std::size_t i = 0; i < sum.size(); ++i)
                    sum[i] = plan.move.op == ReduceOp::sum ? sum[i] + theirs[i] : std::max(sum[i], theirs[i]);
        }
    }
    if (plan.move.kind == MoveKind::all_reduce) out = sum;
    if (plan.move.kind == MoveKind::reduce_scatter) out = picked(sum, spelled(plan.move.in_slices, plan.move.segments[0].count, n)[me]);
    return out;
}

struct Made { Program p; Op op; };
Made make(const TensorType& from, const Placement& to) {
    auto tables = std::make_shared<Tables>(grid);
    Program p(tables);
    const TensorId x = p.declare("x", from);
    p.to(x, to, {});
    const Op op = p.ops.back();
    return {std::move(p), op};
}

void check(const TensorType& from, const Placement& to, MoveKind kind, Priority priority = Priority::urgent) {
    CAPTURE(text(from));
    CAPTURE(text(to, from.dims));
    const Made m = make(from, to);
    for (std::int64_t r = 0; r < grid.ranks(); ++r) {
        const Coordinate c = grid.coordinate(r);
        const MovePlan plan = plan_move(m.p, m.op, c);
        CHECK(plan.move.kind == kind);
        CHECK(plan.move.priority == priority);
        const Buffer_ got = moved(m.p, m.op, c), wanted = local(from.placed(to), c);
        REQUIRE(got.size() == wanted.size());
        for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == doctest::Approx(wanted[i]));
    }
}

Placement partial(Placement p, AxisSet sum, AxisSet max = {}) {
    p.partial_sum = sum;
    p.partial_max = max;
    return p;
}

}  // namespace

TEST_CASE("all-reduce: sum and max, keeping other cuts") {
    const TensorType t({4, 8, 8}, DType::f32, partial(place({dp, sp_zigzag}), tensor_axes));
    check(t, place({dp, sp_zigzag}), MoveKind::all_reduce);
    check(TensorType({4, 8}, DType::f32, partial(place({dp, sp_zigzag}), {}, tensor_axes)), place({dp, sp_zigzag}), MoveKind::all_reduce);
    check(TensorType({4096}, DType::f32, partial({}, {Axis::shard, Axis::sp})), {}, MoveKind::all_reduce, Priority::bulk);
}

TEST_CASE("reduce-scatter and all-gather along any dim, inside zigzag cuts too") {
    const Placement residual = place({dp, sp_zigzag.then(tp), none});
    check(TensorType({4, 32, 8}, DType::f32, partial(place({dp, sp_zigzag, none}), tensor_axes)), residual, MoveKind::reduce_scatter);
    check(TensorType({4, 32, 8}, DType::f32, residual), place({dp, sp_zigzag, none}), MoveKind::all_gather);
    check(TensorType({4, 8, 8}, DType::f32, place({dp, sp_zigzag, none})), place({dp, none, none}), MoveKind::all_gather);
    check(TensorType({4, 8, 8}, DType::f32, place({none, none, tp})), place({none, none, none}), MoveKind::all_gather);
    const Cuts zero = Cuts::along(grid, zero_axes);
    check(TensorType({4096}, DType::f32, partial({}, zero_axes)), place({zero}), MoveKind::reduce_scatter, Priority::bulk);
    check(TensorType({4096}, DType::f32, place({zero})), {}, MoveKind::all_gather, Priority::bulk);
}

TEST_CASE("a flat buffer's slices are the engine's own cuts, so that several can travel together") {
    const Cuts zero = Cuts::along(grid, zero_axes);
    const Made m = make(TensorType({4096}, DType::f32, place({zero})), {});
    CHECK(plan_move(m.p, m.op, {}).move.out_slices.empty());
    const Made inner = make(TensorType({4, 8, 8}, DType::f32, place({none, none, tp})), place({}));
    CHECK(plan_move(inner.p, inner.op, {}).move.out_slices.size() == 4);
}

TEST_CASE("all-to-all: sequence to heads and back, un-permuting zigzag") {
    for (const Cuts& s : {sp, sp_zigzag}) {
        const Placement home = place({dp, s, tp, none}), heads = place({dp, none, tp.then(sp), none});
        check(TensorType({4, 8, 8, 2}, DType::f32, home), heads, MoveKind::all_to_all);
        check(TensorType({4, 8, 8, 2}, DType::f32, heads), home, MoveKind::all_to_all);
    }
}

TEST_CASE("ring: the piece of the coordinate one place before arrives; the last turn brings one's own home") {
    Placement home = place({dp, sp_zigzag, tp, none}), turned = home;
    turned.cuts[1].cut[0].turn = 1;
    check(TensorType({4, 8, 8, 2}, DType::f32, home), turned, MoveKind::ring_shift);
    check(TensorType({4, 8, 8, 2}, DType::f32, turned), home, MoveKind::ring_shift);
}

TEST_CASE("sums over pp: everyone, or the two ends") {
    Placement everyone;
    everyone.holders = Holders::all;
    check(TensorType({}, DType::f64, partial({}, AxisSet(Axis::pp) | tensor_axes | zero_axes)), everyone, MoveKind::all_reduce, Priority::bulk);
    const Grid deep = Grid::of_user_axes(1, 2, 4, 1, 1, 1, {"tp", "sp", "dp", "pp"});
    auto tables = std::make_shared<Tables>(deep);
    Program p(tables);
    Placement from, to;
    from.partial_sum = Axis::pp;
    from.holders = to.holders = Holders::ends;
    p.to(p.declare("x", TensorType({1024}, DType::f32, from)), to, {});
    Coordinate c;
    c[Axis::pp] = 3;
    c[Axis::tp] = 1;
    CHECK(plan_move(p, p.ops[0], c).members == std::vector<int>{1, 7});
    CHECK(plan_move(p, p.ops[0], c).axes == AxisSet(Axis::pp));
}

TEST_CASE("several tensors in one move") {
    auto tables = std::make_shared<Tables>(grid);
    Program p(tables);
    const TensorType k({4, 8, 8, 2}, DType::f32, place({dp, sp_zigzag, tp, none}));
    TensorType turned = k;
    turned.place.cuts[1].cut[0].turn = 1;
    Attributes a;
    a.types = {tables->intern(turned)};
    p.add(Kind::redistribute, {p.declare("k", k), p.declare("v", k)}, a, {});
    const MovePlan plan = plan_move(p, p.ops[0], {});
    CHECK(plan.move.segments.size() == 2);
    CHECK(plan.move.segments[1].count == 2 * 4 * 2 * 2);
    CHECK(plan.members.size() == 2);
}

TEST_CASE("messages between stages") {
    auto tables = std::make_shared<Tables>(grid);
    Program p(tables);
    Attributes a;
    a.peer = 1;
    a.chunk = 3;
    a.gradient = true;
    p.add(Kind::send, {p.declare("x", TensorType({4, 8}, DType::bf16, place({dp})))}, a, {Part::forward, 0, 5, 0});
    Coordinate c;
    c[Axis::tp] = 1;
    c[Axis::sp] = 1;
    const MovePlan plan = plan_move(p, p.ops[0], c);
    CHECK(plan.move.kind == MoveKind::send);
    CHECK(plan.move.dtype == DType::bf16);
    CHECK(plan.move.segments[0].count == 16);
    Coordinate there = c;
    there[Axis::pp] = 1;
    CHECK(plan.move.peer == grid.rank(there));
    CHECK(plan.move.message.kind == 1);
    CHECK(plan.move.message.chunk == 3);
    CHECK(plan.move.message.microbatch == 5);
    CHECK(plan.members.empty());
    CHECK(plan.axes == AxisSet(Axis::pp));
}

TEST_CASE("what stays on the rank: slices, and the first rank's value") {
    const Placement cut = place({dp, sp_zigzag.then(tp), none});
    const TensorType t({4, 32, 8}, DType::f32, place({dp, sp_zigzag, none}));
    const Made m = make(t, cut);
    Placement spread;
    spread.partial_sum = tensor_axes;
    const Made first = make(TensorType({}, DType::f64), spread);
    for (std::int64_t r = 0; r < grid.ranks(); ++r) {
        const Coordinate c = grid.coordinate(r);
        CHECK(picked(local(t, c), plan_local(m.p, m.op, c).mine) == local(t.placed(cut), c));
        CHECK(plan_local(first.p, first.op, c).keeps == (c[Axis::tp] == 0 && c[Axis::tq] == 0));
    }
}

TEST_CASE("wire axes have the user's names") {
    CHECK(wire_name(grid, Axis::shard) == "dp");      // replica has one coordinate: shard is all of dp
    CHECK(wire_name(grid, Axis::tp) == "tp");         // also where tq has two
    CHECK(wire_name(grid, tensor_axes) == "tp");
    CHECK(wire_name(grid, AxisSet(Axis::shard) | Axis::sp) == "dp+sp");
    CHECK(wire_name(grid, Axis::pp) == "pp");
    CHECK(wire_name(Grid::of_user_axes(4, 2, 1, 1, 2, 1, {"tp", "sp", "dp", "pp"}), Axis::shard) == "dp_shard");
    CHECK(wire_name(Grid::of_user_axes(4, 2, 1, 1, 2, 1, {"tp", "sp", "dp", "pp"}), Axis::tp) == "tp");
}
