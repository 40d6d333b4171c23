// Which algorithm serves a move, and how a group lies on nodes. The choice may depend on nothing that members do not all know.
#include <doctest.h>

#include "comm/measured.hpp"
#include "comm/node_grid.hpp"

using namespace quadrille;

namespace {

Move reduction(ReduceOp op, std::initializer_list<std::int64_t> counts) {
    Move m;
    m.kind = MoveKind::all_reduce;
    m.op = op;
    for (const std::int64_t count : counts) m.segments.push_back({nullptr, nullptr, count});
    return m;
}

constexpr Algorithm given[] = {Algorithm::ring, Algorithm::shared, Algorithm::hierarchical, Algorithm::native};

Algorithm chosen(Algorithm of_group, const Move& move, int members) { return algorithm_for(of_group, move, members, {}); }

}  // namespace

TEST_CASE("sums of scalars go by recursive doubling whatever the group has, others never") {
    for (const Algorithm of_group : given) {
        CHECK(chosen(of_group, reduction(ReduceOp::sum, {1}), 4) == Algorithm::doubling);
        CHECK(chosen(of_group, reduction(ReduceOp::sum, {1, 0, 1}), 4) == Algorithm::doubling);
        CHECK(chosen(of_group, reduction(ReduceOp::sum, {2}), 4) == of_group);
        CHECK(chosen(of_group, reduction(ReduceOp::sum, {1, 2}), 4) == of_group);
        CHECK(chosen(of_group, reduction(ReduceOp::max, {100000}), 4) == of_group);
        CHECK(chosen(of_group, reduction(ReduceOp::sum, {1}), 1) == Algorithm::ring);
    }
    CHECK(chosen(Algorithm::ring, reduction(ReduceOp::max, {1000}), 4) == Algorithm::doubling);
    CHECK(chosen(Algorithm::native, reduction(ReduceOp::max, {2}), 4) == Algorithm::native);
}

TEST_CASE("what no algorithm of the group is made for goes by messages") {
    Move m;
    for (const Algorithm of_group : {Algorithm::ring, Algorithm::shared, Algorithm::hierarchical, Algorithm::native}) {
        m.kind = MoveKind::all_to_all;
        CHECK(chosen(of_group, m, 4) == (of_group == Algorithm::native ? Algorithm::native : Algorithm::ring));
        for (const MoveKind kind : {MoveKind::ring_shift, MoveKind::send, MoveKind::receive}) {
            m.kind = kind;
            CHECK(chosen(of_group, m, 4) == Algorithm::ring);
            CHECK(!needs_place(kind));
        }
    }
}

TEST_CASE("members by node") {
    const int two_by_three[] = {7, 7, 9, 9, 7, 9};
    const NodeGrid g = arrange(two_by_three, 4);
    CHECK(g.nodes == 2);
    CHECK(g.per_node == 3);
    CHECK(g.node == 0);
    CHECK(g.local == 2);
    CHECK(g.members == std::vector<int>{0, 1, 4, 2, 3, 5});
    CHECK(g.member(1, 2) == 5);
    CHECK(!g.flat());
    const int uneven[] = {0, 0, 1};
    CHECK(arrange(uneven, 2).flat());
    CHECK(arrange(uneven, 2).nodes == 3);
    const int together[] = {4, 4, 4};
    CHECK(arrange(together, 1).nodes == 1);
    CHECK(arrange(together, 1).local == 1);
    const int apart[] = {0, 1, 2};
    CHECK(arrange(apart, 1).flat());
    CHECK(arrange(apart, 1).node == 1);
}

TEST_CASE("automatic is ring or shared by the nearest times, or by rule where there are none") {
    const auto fastest = [](const MeasuredTimes& times, std::int64_t count, int members) {
        return algorithm_for(Algorithm::automatic, reduction(ReduceOp::sum, {count}), members, times);
    };
    CHECK(fastest({}, 1000, 4) == Algorithm::shared);
    CHECK(fastest({}, 1, 4) == Algorithm::doubling);
    CHECK(MeasuredTimes().fastest(MoveKind::reduce_scatter, 4, 1 << 20) == Algorithm::shared);
    CHECK(MeasuredTimes().fastest(MoveKind::all_gather, 2, 1 << 20) == Algorithm::ring);
    CHECK(MeasuredTimes().fastest(MoveKind::all_gather, 4, 1 << 20) == Algorithm::shared);
    CHECK(MeasuredTimes().fastest(MoveKind::all_gather, 2, 4096) == Algorithm::shared);
    using enum Algorithm;
    const MoveKind kind = MoveKind::all_reduce;
    const MeasuredTimes times({{kind, ring, 2, 4000, 1.0},
                               {kind, shared, 2, 4000, 2.0},
                               {kind, ring, 2, 4000000, 2.0},
                               {kind, shared, 2, 4000000, 1.0},
                               {kind, ring, 8, 4000, 1.0},
                               {kind, shared, 8, 4000, 3.0},
                               {kind, native, 8, 4000000, 0.1},
                               {MoveKind::all_gather, ring, 2, 4000, 1.0}});
    CHECK(fastest(times, 1000, 2) == ring);
    CHECK(fastest(times, 2, 2) == ring);
    CHECK(fastest(times, 30000, 2) == ring);      // 120,000 bytes: thirty times the one, a thirty-third of the other
    CHECK(fastest(times, 33000, 2) == shared);
    CHECK(fastest(times, 10000000, 3) == shared);
    CHECK(fastest(times, 10000000, 5) == ring);   // five is nearer to eight, where only one size was measured
    Move gather = reduction(ReduceOp::sum, {1000});
    gather.kind = MoveKind::all_gather;
    CHECK(algorithm_for(Algorithm::automatic, gather, 2, times) == shared);  // one time alone says nothing
}
