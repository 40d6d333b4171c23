#include "grid/grid.hpp"
#include "base/error.hpp"

#include <doctest.h>

#include <algorithm>
#include <set>

using namespace quadrille;

namespace {

// dp 6 as replica 2 x shard 3, tp 4 as 2 x 2, pp 3, sp 2.
Grid sample(std::vector<std::string> order = {"tp", "sp", "dp", "pp"}) { return Grid::of_user_axes(6, 4, 3, 2, 3, 2, order); }

}  // namespace

TEST_CASE("user axes become the six axes") {
    const Grid g = sample();
    CHECK(g.extent(Axis::pp) == 3);
    CHECK(g.extent(Axis::replica) == 2);
    CHECK(g.extent(Axis::shard) == 3);
    CHECK(g.extent(Axis::sp) == 2);
    CHECK(g.extent(Axis::tp) == 2);
    CHECK(g.extent(Axis::tq) == 2);
    CHECK(g.ranks() == 144);
    CHECK(g.size(data_axes | AxisSet(Axis::sp)) == 12);
    CHECK(Grid::of_user_axes(1, 2, 1, 1, 1, 1, {"tp", "sp", "dp", "pp"}).real(AxisSet::of_bits(63)) == AxisSet(Axis::tp));
}

TEST_CASE("rank and coordinate are inverse, in every order") {
    std::vector<std::string> order = {"dp", "pp", "sp", "tp"};
    do {
        const Grid g = sample(order);
        std::set<std::array<int, axis_count>> seen;
        for (std::int64_t r = 0; r < g.ranks(); ++r) {
            const Coordinate c = g.coordinate(r);
            seen.insert(c.at);
            CHECK(g.rank(c) == r);
        }
        CHECK(seen.size() == 144);
    } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("the first axis of the order varies fastest") {
    const Grid g = sample();
    CHECK(g.coordinate(1)[Axis::tq] == 1);
    CHECK(g.coordinate(2)[Axis::tp] == 1);
    CHECK(g.coordinate(4)[Axis::sp] == 1);
    CHECK(g.coordinate(8)[Axis::shard] == 1);
    CHECK(g.coordinate(24)[Axis::replica] == 1);
    CHECK(g.coordinate(48)[Axis::pp] == 1);
    CHECK(sample({"pp", "dp", "sp", "tp"}).coordinate(1)[Axis::pp] == 1);
}

TEST_CASE("groups are ordered by their coordinates, and positions count in that order") {
    const Grid g = sample();
    const Coordinate from = g.coordinate(100);
    for (const AxisSet axes : {AxisSet(Axis::tp), tensor_axes, data_axes, zero_axes, AxisSet{Axis::pp, Axis::shard, Axis::tq}}) {
        const auto group = g.group(from, axes);
        CHECK(static_cast<std::int64_t>(group.size()) == g.size(axes));
        for (std::size_t i = 0; i < group.size(); ++i) {
            const Coordinate c = g.coordinate(group[i]);
            CHECK(g.position(c, axes) == static_cast<std::int64_t>(i));
            for (const Axis a : all_axes)
                if (!axes.has(a)) CHECK(c[a] == from[a]);
        }
    }
    CHECK(g.group(from, AxisSet{}) == std::vector<std::int64_t>{100});
}

TEST_CASE("a group over pp can be of the ends alone") {
    const Grid g = sample();
    Coordinate from;
    const auto ends = g.group(from, {Axis::pp, Axis::tq}, {0, 2});
    CHECK(ends == std::vector<std::int64_t>{0, 1, 96, 97});
}

TEST_CASE("axes in the user's words") {
    CHECK((data_axes | AxisSet(Axis::sp)).text() == "dp+sp");
    CHECK(AxisSet(Axis::shard).text() == "dp_shard");
    CHECK(AxisSet(Axis::replica).text() == "dp_replica");
    CHECK(tensor_axes.text() == "tp");
    CHECK(AxisSet(Axis::tq).text() == "tp");
    const Grid plain = Grid::of_user_axes(4, 2, 1, 1, 4, 1, {"tp", "sp", "dp", "pp"});
    CHECK(wire_name(plain, Axis::shard) == "dp");
    CHECK(wire_name(plain, Axis::tp) == "tp");
    CHECK(wire_name(sample(), Axis::shard) == "dp_shard");
}

TEST_CASE("a grid of 16,384 ranks") {
    const Grid g = Grid::of_user_axes(8, 8, 16, 16, 8, 1, {"tp", "sp", "dp", "pp"});
    CHECK(g.ranks() == 16384);
    CHECK(g.rank(g.coordinate(16383)) == 16383);
    CHECK(g.group(g.coordinate(777), data_axes | AxisSet(Axis::sp)).size() == 128);
}

TEST_CASE("impossible grids are mistakes of the program") {
    CHECK_THROWS_AS(Grid::of_user_axes(4, 1, 1, 1, 3, 1, {"tp", "sp", "dp", "pp"}), std::logic_error);
    CHECK_THROWS_AS(Grid::of_user_axes(4, 1, 1, 1, 4, 1, {"tp", "sp", "dp"}), std::logic_error);
}
