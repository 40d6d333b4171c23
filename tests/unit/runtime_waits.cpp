#include "runtime/waits.hpp"

#include <doctest.h>

#include <memory>

using namespace quadrille;

namespace {

const Grid grid = Grid::of_user_axes(1, 2, 2, 1, 1, 1, {"tp", "sp", "dp", "pp"});

// Ops on named bytes: tensors of 16 floats, one buffer each, at offsets the test gives.
struct Sketch {
    std::shared_ptr<Tables> tables = std::make_shared<Tables>(grid);
    Program p{tables};

    TensorId at(std::int64_t offset) {
        const TensorId t = p.declare("t", TensorType({16}, DType::f32));
        p.buffers.back().offset = offset;
        p.buffers.back().bytes = 64;
        return t;
    }
    void op(Queue queue, std::vector<TensorId> in, std::vector<TensorId> out, std::int32_t until = -1) {
        Op o;
        o.kind = queue == Queue::compute ? Kind::add : queue == Queue::stage ? Kind::send : Kind::redistribute;
        o.queue = queue;
        o.until = until;
        o.attributes = tables->intern(Attributes{});
        p.append(o, in, out);
    }
    std::vector<Waits> waits() const { return derive_waits(p, {}); }
};

using Ids = std::vector<std::int32_t>;

}  // namespace

TEST_CASE("an op waits for the move that brings what it reads, and no sooner") {
    Sketch s;
    const TensorId a = s.at(0), b = s.at(64), c = s.at(128), d = s.at(192);
    s.op(Queue::collective, {a}, {b}, 4);
    s.op(Queue::compute, {a}, {c});   // reads what the move reads: no hazard
    s.op(Queue::compute, {c}, {d});
    s.op(Queue::compute, {b}, {d});   // before its `until`
    s.op(Queue::compute, {a}, {d});
    const auto w = s.waits();
    CHECK(w[0].before.empty());
    CHECK(w[1].before.empty());
    CHECK(w[2].before.empty());
    CHECK(w[3].before == Ids{0});
    CHECK(w[4].before.empty());       // once waited for, never again
    CHECK(w[5].before.empty());
}

TEST_CASE("writing over what a move reads or writes waits, by bytes and not by names") {
    Sketch s;
    const TensorId a = s.at(0), b = s.at(64), over_a = s.at(32), over_b = s.at(120), far = s.at(1000);
    s.op(Queue::collective, {a}, {b}, 9);
    s.op(Queue::compute, {far}, {over_a});
    s.op(Queue::stage, {b}, {}, 9);       // a send of what the move brings: its own move must not overtake
    s.op(Queue::compute, {far}, {over_b});
    for (int i = 0; i < 5; ++i) s.op(Queue::compute, {far}, {far});
    s.op(Queue::compute, {far}, {far});
    const auto w = s.waits();
    CHECK(w[1].before == Ids{0});
    CHECK(w[2].after.empty());            // done by then
    CHECK(w[3].before == Ids{2});
}

TEST_CASE("moves order themselves by tickets, without holding up the calling thread") {
    Sketch s;
    const TensorId a = s.at(0), b = s.at(64), c = s.at(128);
    s.op(Queue::collective, {a}, {b}, 3);
    s.op(Queue::collective, {b}, {c}, 3);
    s.op(Queue::compute, {a}, {a});
    s.op(Queue::compute, {c}, {c});
    const auto w = s.waits();
    CHECK(w[1].after == Ids{0});
    CHECK(w[1].before.empty());
    CHECK(w[2].before == Ids{0});
    CHECK(w[3].before == Ids{1});
}

TEST_CASE("until, at once, and the end of the step") {
    Sketch s;
    const TensorId a = s.at(0), b = s.at(64), c = s.at(128), far = s.at(1000);
    s.op(Queue::collective, {a}, {b});          // at once
    s.op(Queue::stage, {b}, {}, 3);
    s.op(Queue::stage, {c}, {}, 4);
    s.op(Queue::compute, {far}, {far});         // move 1 is due though nothing conflicts
    const auto w = s.waits();
    CHECK(w[0].at_once);
    CHECK(!w[1].at_once);
    CHECK(w[1].before.empty());                 // the move at once is over
    CHECK(w[3].before == Ids{1});
    CHECK(w[4].before == Ids{2});               // one entry more than ops
    s.p.ops[1].until = 1;
    CHECK_THROWS(s.waits());
}

TEST_CASE("a move at once waits on the calling thread for what it must not overtake") {
    Sketch s;
    const TensorId a = s.at(0), b = s.at(64), c = s.at(128);
    s.op(Queue::collective, {a}, {b}, 2);
    s.op(Queue::collective, {b}, {c});
    const auto w = s.waits();
    CHECK(w[1].before == Ids{0});
    CHECK(w[1].after.empty());
}

TEST_CASE("workspace counts as written; split touches nothing, join its padding only") {
    Sketch s;
    const TensorId a = s.at(0), b = s.at(64), far = s.at(4000);
    s.op(Queue::collective, {a}, {b}, 9);
    s.op(Queue::compute, {far}, {far});
    const BufferId scratch = s.p.add_buffer("workspace", -1, TensorType({16}, DType::f32));
    s.p.buffers[static_cast<std::size_t>(scratch)].offset = 100;
    s.p.buffers[static_cast<std::size_t>(scratch)].bytes = 8;
    s.p.ops[1].workspace = scratch;
    CHECK(derive_waits(s.p, {})[1].before == Ids{0});
    s.p.ops[1].workspace = -1;
    s.p.ops[1].kind = Kind::split;
    s.p.operands[static_cast<std::size_t>(s.p.ops[1].first)] = b;
    CHECK(derive_waits(s.p, {})[1].before.empty());
    s.p.ops[1].kind = Kind::join;               // of the flat buffer b: elements 12 .. 16 are padding
    Flat flat;
    flat.end = 12;
    flat.length = 16;
    s.p.flats.push_back(flat);
    Attributes at;
    at.unit = 0;
    s.p.ops[1].attributes = s.tables->intern(at);
    s.p.operands[static_cast<std::size_t>(s.p.ops[1].first) + 1] = b;
    const Accesses touched = accesses(s.p, s.p.ops[1], {});
    CHECK(touched.reads.empty());
    CHECK(touched.writes == std::vector<ByteRange>{{Tier::device, 64 + 48, 128}});
    CHECK(derive_waits(s.p, {})[1].before == Ids{0});
}

TEST_CASE("a slice along axes lies where the coordinate says") {
    Sketch s;
    const TensorId whole = s.at(256);
    Placement cut;
    cut.cuts[0] = Cuts::along(grid, tensor_axes);
    const BufferId there = s.p.tensors[static_cast<std::size_t>(whole)].buffer;
    const TensorId part = s.p.declare("part", TensorType({16}, DType::f32, cut), -1, there, 0, tensor_axes);
    for (std::int64_t r = 0; r < grid.ranks(); ++r) {
        const Coordinate c = grid.coordinate(r);
        CHECK(range_of(s.p, c, part).begin == 256 + 32 * c[Axis::tp]);
        CHECK(range_of(s.p, c, part).end == 288 + 32 * c[Axis::tp]);
    }
}
