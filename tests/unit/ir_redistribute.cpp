// Every pair of placements that a move may go between, and those that it may not.
#include "ir/table.hpp"

#include <doctest.h>

using namespace quadrille;

namespace {

struct Places {
    Placement whole, sum, max, cut, other_dim, turned;
    Places() {
        sum.partial_sum = Axis::sp;
        max.partial_max = Axis::sp;
        cut.cuts[1] = {{Axis::sp}};
        other_dim.cuts[2] = {{Axis::sp}};
        turned.cuts[1] = {{Axis::sp, Layout::block, 1}};
    }
};

TensorType at(const Placement& p) { return TensorType({4, 8, 8}, DType::f32, p); }
Pair pair(const Placement& from, const Placement& to) { return change(at(from), to).pair; }

}  // namespace

TEST_CASE("pairs") {
    const Places p;
    CHECK(pair(p.sum, p.whole) == Pair::all_reduce);
    CHECK(pair(p.max, p.whole) == Pair::all_reduce);
    CHECK(change(at(p.max), p.whole).max);
    CHECK(pair(p.sum, p.cut) == Pair::reduce_scatter);
    CHECK(pair(p.cut, p.whole) == Pair::all_gather);
    CHECK(pair(p.cut, p.other_dim) == Pair::all_to_all);
    CHECK(pair(p.cut, p.turned) == Pair::ring_shift);
    CHECK(pair(p.turned, p.cut) == Pair::ring_shift);
    CHECK(pair(p.whole, p.cut) == Pair::slice);
    CHECK(pair(p.whole, p.sum) == Pair::first_keeps);
    CHECK(change(at(p.cut), p.other_dim).from_dim == 1);
    CHECK(change(at(p.cut), p.other_dim).to_dim == 2);
    CHECK_FALSE(moves_data(Pair::slice));
    CHECK_FALSE(moves_data(Pair::first_keeps));
    CHECK(moves_data(Pair::ring_shift));
}

TEST_CASE("moves that do not exist") {
    const Places p;
    CHECK_THROWS_AS(pair(p.cut, p.cut), TypingError);  // goes nowhere
    CHECK_THROWS_AS(pair(p.cut, p.sum), TypingError);  // a piece is no term
    CHECK_THROWS_AS(pair(p.max, p.cut), TypingError);  // a maximum is only ever made whole
    CHECK_THROWS_AS(pair(p.whole, p.max), TypingError);
}

TEST_CASE("one pair for a set of axes") {
    Placement from, to;
    from.partial_sum = {Axis::sp, Axis::shard};
    CHECK(change(at(from), to).axes == AxisSet{Axis::sp, Axis::shard});
    from.partial_sum = Axis::sp;
    from.cuts[0] = {{Axis::shard}};
    CHECK_THROWS_AS(change(at(from), to), TypingError);  // all-reduce and all-gather
    Placement half;
    half.cuts[0] = {{Axis::shard}};
    CHECK(change(at(from), half).pair == Pair::all_reduce);
    CHECK(change(at(from), half).axes == AxisSet(Axis::sp));
}

TEST_CASE("only the innermost axes of a dim come and go") {
    Placement both, outer, inner, none;
    both.cuts[1] = {{Axis::sp}, {Axis::tp}};
    outer.cuts[1] = {{Axis::sp}};
    inner.cuts[1] = {{Axis::tp}};
    CHECK(change(at(both), outer).axes == AxisSet(Axis::tp));
    CHECK(change(at(both), none).axes == AxisSet{Axis::sp, Axis::tp});
    CHECK_THROWS_AS(change(at(both), inner), TypingError);
    CHECK_THROWS_AS(change(at(inner), both), TypingError);
    Placement heads;  // Ulysses: from the sequence to inside the heads
    heads.cuts[1] = {};
    heads.cuts[2] = {{Axis::tp}, {Axis::sp}};
    Placement sequence;
    sequence.cuts[1] = {{Axis::sp}};
    sequence.cuts[2] = {{Axis::tp}};
    CHECK(change(at(sequence), heads).pair == Pair::all_to_all);
    CHECK(change(at(sequence), heads).axes == AxisSet(Axis::sp));
}
