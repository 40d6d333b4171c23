#include "ir/tables.hpp"

#include <doctest.h>

#include <algorithm>

using namespace quadrille;

namespace {

using Ids = std::vector<std::int64_t>;

const std::vector<std::string> order = {"tp", "sp", "dp", "pp"};
Grid grid(int dp, int tp, int sp, int tq = 1) { return Grid::of_user_axes(dp, tp, 1, sp, dp, tq, order); }

Coordinate at(std::initializer_list<std::pair<Axis, int>> where) {
    Coordinate c;
    for (const auto& [axis, i] : where) c[axis] = i;
    return c;
}

TensorType vector_of(std::int64_t n, Cuts cuts) {
    Placement p;
    p.cuts[0] = cuts;
    return TensorType({n}, DType::f32, p);
}

}  // namespace

TEST_CASE("blocks") {
    const TensorType t = vector_of(12, {{Axis::tp}});
    CHECK(indices(grid(1, 3, 1), t, 0, at({{Axis::tp, 1}})) == Ids{4, 5, 6, 7});
    CHECK(local_count(grid(1, 3, 1), t) == 4);
}

TEST_CASE("zigzag: coordinate r of n has pieces r and 2n-1-r") {
    const TensorType t = vector_of(12, {{Axis::sp, Layout::zigzag}});
    CHECK(indices(grid(1, 1, 3), t, 0, at({{Axis::sp, 0}})) == Ids{0, 1, 10, 11});
    CHECK(indices(grid(1, 1, 3), t, 0, at({{Axis::sp, 2}})) == Ids{4, 5, 6, 7});
    CHECK(divides(grid(1, 1, 3), t));
    CHECK_FALSE(divides(grid(1, 1, 4), t));
}

TEST_CASE("a turn holds the piece of the neighbour before") {
    TensorType t = vector_of(6, {{Axis::sp, Layout::block, 1}});
    CHECK(indices(grid(1, 1, 3), t, 0, at({{Axis::sp, 0}})) == Ids{4, 5});
    CHECK(indices(grid(1, 1, 3), t, 0, at({{Axis::sp, 1}})) == Ids{0, 1});
    t.place.cuts[0].cut[0].turn = 2;
    CHECK(indices(grid(1, 1, 3), t, 0, at({{Axis::sp, 0}})) == Ids{2, 3});
    TensorType wide = vector_of(40000, {{Axis::sp}});
    wide.place.cuts[0].cut[0].turn = 39999;  // more than 16 bits
    CHECK(indices(grid(1, 1, 40000), wide, 0, at({{Axis::sp, 0}})) == Ids{1});
}

TEST_CASE("the order of nesting tells who holds what") {
    const Grid g = grid(1, 2, 2);
    const Coordinate c = at({{Axis::sp, 0}, {Axis::tp, 1}});
    CHECK(indices(g, vector_of(8, {{Axis::sp}, {Axis::tp}}), 0, c) == Ids{2, 3});
    CHECK(indices(g, vector_of(8, {{Axis::tp}, {Axis::sp}}), 0, c) == Ids{4, 5});
    // Megatron's cut of a zigzag sequence: tp inside the pieces that sp holds
    CHECK(indices(g, vector_of(16, {{Axis::sp, Layout::zigzag}, {Axis::tp}}), 0, c) == Ids{12, 13, 14, 15});
}

TEST_CASE("index runs are joined, and never listed") {
    const Grid g = grid(1, 2, 2);
    const Coordinate first, last = at({{Axis::sp, 1}, {Axis::tp, 1}});
    const TensorType zigzag = vector_of(16, {{Axis::sp, Layout::zigzag}});
    CHECK(index_runs(g, zigzag, 0, first) == Extents{{0, 4}, {12, 4}});
    CHECK(index_runs(g, zigzag, 0, last) == Extents{{4, 8}});  // the middle pieces are neighbours
    CHECK(first_index(g, zigzag, 0, last) == 4);
    CHECK_THROWS_AS(first_index(g, zigzag, 0, first), std::logic_error);  // two runs have no one start
    const std::int64_t many = std::int64_t{1} << 40;
    CHECK(index_runs(g, vector_of(many, {{Axis::sp}, {Axis::tp}}), 0, last) == Extents{{many / 4 * 3, many / 4}});
}

TEST_CASE("who takes part in a sum over pp") {
    const auto members = [](int pp, Holders h) { return pp_members(Grid::of_user_axes(1, 1, pp, 1, 1, 1, order), h); };
    using Members = std::vector<int>;
    CHECK(members(4, Holders::all) == Members{0, 1, 2, 3});
    CHECK(members(4, Holders::ends) == Members{0, 3});
    CHECK(members(2, Holders::ends) == Members{0, 1});
    CHECK(members(1, Holders::ends) == Members{0});
    CHECK(members(3, Holders::own) == Members{0, 1, 2});
}

TEST_CASE("the ranks of any cut hold every index once") {
    const Grid g = Grid::of_user_axes(2, 4, 1, 2, 2, 2, order);
    const std::vector<Cuts> cuts = {{{Axis::shard}, {Axis::sp}, {Axis::tp}, {Axis::tq}},
                                    {{Axis::sp, Layout::zigzag}, {Axis::tp}, {Axis::tq}},
                                    {{Axis::sp, Layout::zigzag, 1}},
                                    {{Axis::tq}, {Axis::shard}}};
    for (const Cuts& c : cuts) {
        const TensorType t = vector_of(48, c);
        Ids all;
        for (const std::int64_t r : g.group({}, c.axes())) {
            const Ids mine = indices(g, t, 0, g.coordinate(r));
            CHECK(static_cast<std::int64_t>(mine.size()) == local_count(g, t));
            all.insert(all.end(), mine.begin(), mine.end());
        }
        std::sort(all.begin(), all.end());
        CHECK(all.size() == 48);
        for (std::size_t i = 0; i < all.size(); ++i) CHECK(all[i] == static_cast<std::int64_t>(i));
    }
}

TEST_CASE("sizes are 64-bit") {
    const TensorType t({8, 1048576, 150000}, DType::bf16);
    CHECK(local_count(grid(1, 1, 1), t) == 1258291200000);
    CHECK(local_bytes(grid(1, 1, 1), t) == 2516582400000);
    Placement p;
    p.cuts[2] = {{Axis::tp}};
    CHECK(local_bytes(grid(1, 2, 1), t.placed(p)) == 1258291200000);
}

TEST_CASE("text") {
    Placement p;
    p.cuts[0] = {{Axis::shard}};
    p.cuts[1] = {{Axis::sp, Layout::zigzag}, {Axis::tp}};
    p.partial_sum = Axis::tq;
    CHECK(text(TensorType({8, 128, 64}, DType::bf16, p)) == "bf16[8/shard,128/sp~/tp,64]+sum:tq");
    CHECK(text(p, 3) == "[/shard,/sp~/tp,]+sum:tq");
    TensorType scalar({}, DType::f64);
    scalar.place.holders = Holders::all;
    CHECK(text(scalar) == "f64[]@all-pp");
    CHECK(text(vector_of(6, {{Axis::sp, Layout::block, 2}})) == "f32[6/sp@2]");
}

TEST_CASE("tables give equal things one number") {
    Tables tables(grid(2, 2, 1));
    const TensorType t = vector_of(8, {{Axis::tp}});
    CHECK(tables.intern(t) == tables.intern(vector_of(8, {{Axis::tp}})));
    CHECK(tables.intern(t) != tables.intern(t.in(Book::weights)));
    CHECK(tables.intern(t) != tables.intern(t.of(DType::bf16)));
    CHECK(tables.bytes(tables.intern(t)) == 16);
    CHECK_THROWS_AS(tables.intern(vector_of(7, {{Axis::tp}})), TypingError);
    Attributes a;
    a.signature = "bsh,fh->bsf";
    const AttributesId id = tables.intern(a);
    CHECK(tables.intern(a) == id);
    a.clip = 1;
    CHECK(tables.intern(a) != id);
    CHECK(tables.intern("x") == tables.intern(std::string_view("x")));
}

TEST_CASE("running sums cover each contribution once") {
    Tables tables(grid(1, 1, 1));
    const auto first = tables.covers({{0, 0}}), second = tables.covers({{1, 0}}), both = tables.joined(first, second);
    CHECK(tables.covers(both) == Cover::complete(2, 1));
    CHECK(tables.joined(second, first) == both);
    CHECK_THROWS_AS(tables.joined(both, second), TypingError);
    CHECK_THROWS_AS(tables.joined(both, 0), TypingError);
}

TEST_CASE("a set of contributions is as few runs as it can be, in whatever order it grew") {
    Cover some = Contribution{4, 0};
    for (const Contribution c : {Contribution{6, 0}, Contribution{0, 1}, Contribution{5, 0}, Contribution{1, 1}, Contribution{0, 0}})
        some = joined(Cover(c), some);
    CHECK(some.runs() == std::vector<Cover::Run>{{0, 0, 1}, {0, 4, 3}, {1, 0, 2}});
    CHECK(some.size() == 6);
    CHECK(some.uses() == 2);
    for (const Contribution c : {Contribution{4, 0}, Contribution{6, 0}, Contribution{1, 1}}) CHECK_THROWS_AS(joined(some, c), TypingError);
    Cover all = joined(some, joined(joined(Contribution{1, 0}, Contribution{2, 0}), joined(Contribution{3, 0}, Contribution{2, 1})));
    CHECK(all.runs().size() == 2);
    CHECK(all != Cover::complete(7, 2));
    for (int m = 3; m < 7; ++m) all = joined(all, Contribution{m, 1});
    CHECK(all == Cover::complete(7, 2));
}
