// Typing of packed gradients: from a gradient that is Partial to the slices of its sum, and what is refused on the way.
#include "ir/program.hpp"
#include "ir/table.hpp"

#include <doctest.h>

using namespace quadrille;

namespace {

// dp 4 as 2 copies of 2, tp 2.
struct Exchange {
    std::shared_ptr<Tables> tables = std::make_shared<Tables>(Grid::of_user_axes(4, 2, 1, 1, 2, 1, {"tp", "sp", "dp", "pp"}));
    Program p{tables};
    Where where{Part::step, tables->intern("unit"), -1, -1};
    Attributes a;

    explicit Exchange(AxisSet over, Packing packing = {PackingMethod::bf16, 0, 0}) {
        a.over = over;
        a.packing = packing;
    }
    TensorId flat(Cuts cuts, AxisSet partial, DType t = DType::f32, bool sum = true) {
        TensorType type({8192}, t, {}, Book::gradients);
        type.place.cuts[0] = cuts;
        type.place.partial_sum = partial;
        type.place.varies = tensor_axes;
        if (sum) type.covers = tables->covers({{0, 0}});
        return p.declare("g", type);
    }
    std::vector<TensorId> compress(std::vector<TensorId> in) { return p.add(Kind::compress, std::move(in), a, where); }
    TensorId sent(TensorId packets) {
        Placement to = p.type(packets).place;
        std::swap(to.cuts[0], to.cuts[1]);
        return p.to(packets, to, where);
    }
    TensorId sum(TensorId packets, TensorType type) {
        Attributes d = a;
        type.covers = 0;
        d.types = {tables->intern(type)};
        return p.add(Kind::decompress, {packets}, d, where)[0];
    }
    TensorType slice(Cuts cuts, AxisSet partial = {}, DType t = DType::f32) { return p.type(flat(cuts, partial, t)); }
};

const Cuts whole, shard = {{Axis::shard}}, both = {{Axis::shard}, {Axis::replica}}, wrong = {{Axis::replica}, {Axis::shard}};
const AxisSet dp = {Axis::replica, Axis::shard};

}  // namespace

TEST_CASE("packets between copies: of a slice, to slices of it") {
    Exchange x(Axis::replica);
    const TensorId g = x.flat(shard, Axis::replica), packets = x.compress({g})[0];
    CHECK(text(x.p.type(packets)) == "u8[2,2/replica,4096]*shard*tp*tq");
    CHECK(x.p.type(packets).covers == x.p.type(g).covers);
    const TensorId here = x.sent(packets);
    CHECK(text(x.p.type(here)) == "u8[2/replica,2,4096]*shard*tp*tq");
    CHECK(x.p.ops.back().queue == Queue::collective);
    CHECK(change(x.p, x.p.ops.back()).pair == Pair::all_to_all);
    const TensorId sum = x.sum(here, x.slice(both));
    CHECK(text(x.p.type(sum)) == "f32[8192/shard/replica]*tp*tq");
    CHECK(x.p.type(sum).covers == x.p.type(g).covers);
    CHECK_THROWS_AS(x.sum(packets, x.slice(both)), TypingError);  // nobody has sent them
    CHECK_THROWS_AS(x.sum(here, x.slice(wrong)), TypingError);
    CHECK_THROWS_AS(x.sum(here, x.slice({{Axis::replica}})), TypingError);
    CHECK_THROWS_AS(x.sum(here, x.slice(shard, Axis::replica)), TypingError);
    CHECK_THROWS_AS(x.sum(g, x.slice(both)), TypingError);
    x.a.packing = {PackingMethod::qsgd, 0, 4};
    CHECK_THROWS_AS(x.sum(here, x.slice(both)), TypingError);  // packets of another size
}

TEST_CASE("what may be packed: a gradient of a unit, Partial over all who exchange it, in whole blocks") {
    Exchange x(dp);
    CHECK(text(x.p.type(x.compress({x.flat(whole, dp)})[0])) == "u8[4,4/replica/shard,4096]*tp*tq");
    CHECK(text(x.p.type(x.compress({x.flat(whole, dp | AxisSet(Axis::pp))})[0])) == "u8[4,4/replica/shard,4096]+sum:pp*tp*tq");
    CHECK(text(x.p.type(x.compress({x.flat(whole, dp, DType::bf16)})[0])) == "u8[4,4/replica/shard,4096]*tp*tq");
    CHECK_THROWS_AS(x.compress({x.flat(whole, Axis::shard)}), TypingError);
    CHECK_THROWS_AS(x.compress({x.flat(shard, Axis::replica)}), TypingError);
    CHECK_THROWS_AS(x.compress({x.flat(whole, dp, DType::f32, false)}), TypingError);
    CHECK_THROWS_AS(x.compress({x.flat(whole, dp, DType::f64)}), TypingError);
    x.a.packing.method = PackingMethod::none;
    CHECK_THROWS_AS(x.compress({x.flat(whole, dp)}), TypingError);
    Exchange nobody({});
    CHECK_THROWS_AS(nobody.compress({nobody.flat(whole, dp)}), TypingError);
    Exchange fine(dp);
    TensorType small({4096 - 1024}, DType::f32);  // slices of 768
    small.place.partial_sum = dp;
    small.covers = fine.tables->covers({{0, 0}});
    CHECK_THROWS_AS(fine.compress({fine.p.declare("g", small)}), TypingError);
}

TEST_CASE("a residual lies as its gradient does, in fp32, and no sum covers it") {
    for (const DType t : {DType::f32, DType::bf16}) {
        Exchange x(dp);
        const TensorId g = x.flat(whole, dp, t), r = x.flat(whole, dp, DType::f32, false);
        const auto made = x.compress({g, r});
        REQUIRE(made.size() == 2);
        CHECK(x.p.type(made[1]).same_place(x.p.type(r)));
        CHECK(x.p.type(made[1]).covers == 0);
        CHECK_THROWS_AS(x.compress({g, x.flat(whole, Axis::shard, DType::f32, false)}), TypingError);
        CHECK_THROWS_AS(x.compress({g, x.flat(shard, Axis::replica, DType::f32, false)}), TypingError);
        CHECK_THROWS_AS(x.compress({g, x.flat(whole, dp)}), TypingError);
        CHECK_THROWS_AS(x.compress({g, x.flat(whole, dp, DType::bf16, false)}), TypingError);
        const TensorId norm = x.p.declare("n", TensorType({}, DType::f64)), part = x.p.declare("n", TensorType({}, DType::f64).placed([] {
            Placement p;
            p.partial_sum = Axis::shard;
            return p;
        }()));
        const auto kept = x.p.add(Kind::retain, {r, made[1], norm}, {}, x.where);
        CHECK(x.p.type(kept[0]).same_place(x.p.type(r)));
        CHECK(text(x.p.type(kept[1])) == "f64[]+sum:replica+sum:shard+sum:tp");
        CHECK_THROWS_AS(x.p.add(Kind::retain, {r, made[1], part}, {}, x.where), TypingError);
        CHECK_THROWS_AS(x.p.add(Kind::retain, {r, x.flat(shard, Axis::replica, DType::f32, false), norm}, {}, x.where), TypingError);
    }
}
