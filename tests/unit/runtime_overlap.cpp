// Intervals, like ops, and arithmetic beside moves, on times made by hand.
#include "runtime/overlap.hpp"

#include <doctest.h>

using namespace quadrille;

TEST_CASE("a union counts what several moves share once") {
    const std::vector<Interval> all = united({{5, 6}, {1, 3}, {2, 4}, {4, 4.5}, {9, 9}, {8, 7}});
    CHECK(all == std::vector<Interval>{{1, 4.5}, {5, 6}});
    CHECK(total(all) == 4.5);
    CHECK(united({}).empty());
}

TEST_CASE("arithmetic beside moves is compared with like ops of the step that had none beside them") {
    const std::vector<Interval> moves = {{10, 20}, {30, 31}};
    const std::vector<Stretch> ran = {
        {0, {0, 4}}, {1, {4, 5}}, {0, {5, 7}},  // alone: like 0 takes 3 s, like 1 takes 1 s
        {0, {9, 13}},                           // 1 s of its 4 alone, so 2 s of work in 3 s
        {0, {13, 17}},                          // 3 s of work in 4 s
        {2, {17, 19}},                          // never alone: nothing to compare it with
        {1, {19, 20}},                          // as fast as alone
        {0, {20, 23}},                          // alone again
        {1, {29.5, 31.5}},                      // 1 s of its 2 alone: no work was done in the other
    };
    const Beside b = beside(ran, moves, 3);
    CHECK(b.seconds == doctest::Approx(3 + 4 + 1 + 1));
    CHECK(b.alone == doctest::Approx(2 + 3 + 1 + 0));
    CHECK(beside(ran, {}, 3).seconds == 0);
    CHECK(beside({}, moves, 0).alone == 0);
}

TEST_CASE("ops are like whose kind, attributes and operands are, whatever sums they carry on") {
    auto tables = std::make_shared<Tables>(Grid());
    Program p(tables);
    const Cover first = Cover::complete(1, 1), both = Cover::complete(2, 1);
    TensorType sum({8}, DType::f32), more = sum;
    sum.covers = tables->covers(first);
    more.covers = tables->covers(both);
    const TensorId a = p.declare("a", TensorType({8}, DType::f32)), b = p.declare("b", sum), c = p.declare("c", more),
                   d = p.declare("d", TensorType({9}, DType::f32));
    const auto op = [&](Kind kind, TensorId in, TensorId out, bool adds = false) {
        Op x;
        x.kind = kind;
        x.adds = adds;
        p.append(x, std::array{in}, std::array{out});
        return p.ops.back();
    };
    LikeOps likes;
    const std::int32_t one = likes.number(p, op(Kind::gelu, a, b));
    CHECK(likes.number(p, op(Kind::gelu, a, c)) == one);
    CHECK(likes.number(p, op(Kind::gelu, a, d)) != one);
    CHECK(likes.number(p, op(Kind::swiglu, a, b)) != one);
    CHECK(likes.number(p, op(Kind::gelu, a, b, true)) != one);
    CHECK(likes.count() == 4);
}
