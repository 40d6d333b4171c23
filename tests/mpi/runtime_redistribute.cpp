// Every pair of placements, moved by the executor between real ranks, in flight and at once: what arrives is what the types say.
#include "mpi_main.hpp"

#include "compile/lay_out.hpp"
#include "cpu/device.hpp"
#include "ir/table.hpp"
#include "runtime/addresses.hpp"
#include "runtime/executor.hpp"
#include "runtime/moves.hpp"

#include <algorithm>
#include <memory>

using namespace quadrille;
using quadrille::test::world;

namespace {

Placement place(std::initializer_list<Cuts> cuts) {
    Placement p;
    std::size_t d = 0;
    for (const Cuts& c : cuts) p.cuts[d++] = c;
    return p;
}

Placement partial(Placement p, AxisSet sum) {
    p.partial_sum = sum;
    return p;
}

// Global element i is i + 1; a Partial value is split over its ranks in ascending shares, exactly representable.
std::vector<double> local(const Grid& grid, const TensorType& t, const Coordinate& c) {
    std::vector<double> out;
    const std::int64_t n = grid.size(t.place.partial_sum), me = grid.position(c, t.place.partial_sum);
    for (const Extent& e : slice_of(grid, t.placed({}), c, t, c))
        for (std::int64_t i = e.offset; i < e.offset + e.count; ++i) {
            const double whole = static_cast<double>(i + 1), share = static_cast<double>(me);
            out.push_back(me == n - 1 ? whole - static_cast<double>((n - 1) * (n - 2) / 2) : share);  // 0 + 1 + ... + (n-2) + the rest
        }
    return out;
}

// x -> to -> back again if `back`, each move in flight until its reader or done at once.
void check(const Grid& grid, const TensorType& from, std::vector<Placement> path, bool in_flight) {
    Program p(std::make_shared<Tables>(grid));
    const Coordinate at = grid.coordinate(world().rank());
    p.coordinate = at[Axis::pp];
    std::vector<TensorId> values = {p.declare("x", from)};
    for (const Placement& to : path) values.push_back(p.to(values.back(), to, {}));
    for (Buffer& b : p.buffers) b.persistent = true;
    for (std::size_t i = 0; i < p.ops.size(); ++i)
        if (in_flight && p.ops[i].queue != Queue::compute) p.ops[i].until = static_cast<std::int32_t>(p.ops.size());
    lay_out(p, {});
    CpuDevice device(1);
    Arena arena(device, {p.peaks[0].arena, 0, 0}, "the test", world().rank(), 1);
    ExecutorOptions options;
    options.wire_axes = wire_axes(p);
    EngineOptions engine_options;
    Engine engine(world(), engine_options);
    Executor executor(p, world(), engine, arena, options);
    const auto floats = [&](TensorId t) { return reinterpret_cast<float*>(arena.data(Tier::device) + range_of(p, at, t).begin); };
    const auto mine = local(grid, from, at);
    std::copy(mine.begin(), mine.end(), floats(values[0]));
    executor.run({});
    for (std::size_t k = 1; k < values.size(); ++k) {
        const TensorType& t = p.type(values[k]);
        CAPTURE(text(p.type(values[k - 1])));
        CAPTURE(text(t));
        const std::vector<double> wanted = local(grid, t, at);
        bool equal = true;
        for (std::size_t i = 0; i < wanted.size(); ++i) equal = equal && static_cast<double>(floats(values[k])[i]) == wanted[i];
        const bool spread = !t.place.partial_sum.empty();  // then only its sum is known, which the next move shows
        CHECK((equal || spread));
    }
}

void check_all(const Grid& grid) {
    const Cuts sp = Cuts::along(grid, Axis::sp, Layout::zigzag), tp = Cuts::along(grid, tensor_axes);
    const Cuts dp = Cuts::along(grid, data_axes), zero = Cuts::along(grid, zero_axes), none;
    const AxisSet t_axes = grid.real(tensor_axes), z_axes = grid.real(zero_axes);
    for (const bool in_flight : {false, true}) {
        if (!t_axes.empty()) {
            const Placement whole = place({dp, sp, none}), residual = place({dp, sp.then(tp), none});
            const TensorType sum({8, 64, 6}, DType::f32, partial(whole, t_axes));
            check(grid, sum, {whole, residual, whole}, in_flight);           // all-reduce, slice, all-gather
            check(grid, sum, {residual, whole, partial(whole, t_axes), residual}, in_flight);  // reduce-scatter, gather, first keeps, reduce-scatter
            check(grid, TensorType({8, 64, 8}, DType::f32, place({none, none, tp})), {place({none, none, none}), place({none, tp, none})}, in_flight);
        }
        if (!z_axes.empty())
            check(grid, TensorType({16 * 1024}, DType::f32, partial({}, z_axes)), {place({zero}), {}, partial({}, z_axes), {}}, in_flight);
        if (grid.extent(Axis::sp) > 1) {
            const Placement home = place({dp, sp, tp, none}), heads = place({dp, none, tp.then(Cuts::along(grid, Axis::sp)), none});
            check(grid, TensorType({8, 32, 16, 2}, DType::f32, home), {heads, home}, in_flight);
            std::vector<Placement> turns;
            for (int j = 1; j <= grid.extent(Axis::sp); ++j) {
                turns.push_back(home);
                turns.back().cuts[1].cut[0].turn = static_cast<std::int32_t>(j % grid.extent(Axis::sp));
            }
            check(grid, TensorType({8, 32, 16, 2}, DType::f32, home), turns, in_flight);
        }
    }
}

}  // namespace

TEST_CASE("every pair on every grid of this many ranks") {
    const int n = world().size();
    const std::vector<std::string> order = {"tp", "sp", "dp", "pp"};
    for (const int dp : {1, 2, 4, 8})
        for (const int tp : {1, 2, 4, 8})
            for (const int sp : {1, 2, 4, 8}) {
                if (dp * tp * sp != n) continue;
                CAPTURE(dp);
                CAPTURE(tp);
                CAPTURE(sp);
                check_all(Grid::of_user_axes(dp, tp, 1, sp, dp, 1, order));
                if (tp == 4) check_all(Grid::of_user_axes(dp, tp, 1, sp, dp, 2, order));
                if (dp == 4) check_all(Grid::of_user_axes(dp, tp, 1, sp, 2, 1, order));
            }
}

TEST_CASE("a message between stages, and a sum that all of them hold") {
    const int n = world().size();
    if (n < 2) return;
    const Grid grid = Grid::of_user_axes(1, n / 2, 2, 1, 1, 1, {"tp", "sp", "dp", "pp"});
    const Coordinate at = grid.coordinate(world().rank());
    Program p(std::make_shared<Tables>(grid));
    p.coordinate = at[Axis::pp];
    const TensorType t({4, 8, 4}, DType::f32);
    Attributes a;
    a.chunk = 0;
    a.peer = 1 - at[Axis::pp];
    const TensorId x = at[Axis::pp] == 0 ? p.declare("x", t) : -1;
    TensorId y = -1;
    if (at[Axis::pp] == 0) {
        p.add(Kind::send, {x}, a, {Part::forward, 0, 3, 0});
    } else {
        a.types = {p.tables->intern(t)};
        y = p.add(Kind::recv, {}, a, {Part::forward, 0, 3, 0})[0];
    }
    Placement split, everyone;
    split.partial_sum = Axis::pp;
    everyone.holders = Holders::all;
    const TensorId number = p.declare("n", TensorType({}, DType::f64, split));
    const TensorId total = p.to(number, everyone, {});
    if (at[Axis::pp] == 1) p.loss = p.add(Kind::reciprocal, {total}, {}, {})[0];  // only the last stage has it
    p.norm = total;
    for (Buffer& b : p.buffers) b.persistent = true;
    for (Op& op : p.ops) op.until = op.queue == Queue::stage ? static_cast<std::int32_t>(p.ops.size()) : -1;
    lay_out(p, {});
    CpuDevice device(1);
    Arena arena(device, {p.peaks[0].arena, 0, 0}, "the test", world().rank(), 1);
    Engine engine(world());
    ExecutorOptions options;
    options.wire_axes = {"pp"};
    Executor executor(p, world(), engine, arena, options);
    const auto at_byte = [&](TensorId id) { return arena.data(Tier::device) + range_of(p, at, id).begin; };
    if (x >= 0)
        for (int i = 0; i < 128; ++i) reinterpret_cast<float*>(at_byte(x))[i] = static_cast<float>(i + 100 * at[Axis::tp]);
    *reinterpret_cast<double*>(at_byte(number)) = at[Axis::pp] + 1.5;
    const StepResult s = executor.run({});
    if (y >= 0)
        for (int i = 0; i < 128; ++i) CHECK(reinterpret_cast<float*>(at_byte(y))[i] == static_cast<float>(i + 100 * at[Axis::tp]));
    CHECK(s.loss == 0.25);
    CHECK(s.grad_norm == 2.0);
    CHECK(s.sent_bytes == std::vector<std::int64_t>{(x >= 0 ? 512 : 0) + 8});
    CHECK(at_byte(total) != nullptr);
}
