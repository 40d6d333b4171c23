// Links between places, and rings over them, on machines made up here.
#include "grid/topology.hpp"

#include <doctest.h>

using namespace quadrille;

namespace {

// Two nodes of two sockets of two NUMA domains of one rank each, and a rank that is bound to nothing.
Topology machine() {
    Topology t;
    for (int r = 0; r < 8; ++r) t.places.push_back({r / 4, r / 2 % 2, r % 4});
    t.places.push_back({1, -1, -1});
    t.speeds = {LinkSpeed{1, 100}, LinkSpeed{2, 50}, LinkSpeed{3, 25}, LinkSpeed{10, 5}};
    return t;
}

Grid grid(int dp, int tp, const std::vector<std::string>& order) { return Grid::of_user_axes(dp, tp, 1, 1, dp, 1, order); }

}  // namespace

TEST_CASE("a link is what two ranks have in common at least") {
    const Topology t = machine();
    CHECK(t.link(0, 0) == Link::numa);
    CHECK(t.link(0, 1) == Link::socket);
    CHECK(t.link(1, 2) == Link::node);
    CHECK(t.link(0, 4) == Link::network);  // sockets of the same number on two nodes
    CHECK(t.link(7, 8) == Link::node);     // nobody knows where rank 8 runs
    CHECK(t.link(8, 8) == Link::node);
    CHECK(t.nodes() == 2);
}

TEST_CASE("farther is not faster") {
    Topology t = machine();
    t.speeds = {LinkSpeed{2, 50}, LinkSpeed{1, 100}, LinkSpeed{3, 40}, LinkSpeed{1, 45}};
    t.make_monotone();
    CHECK(t.speed(Link::socket).latency == 2);
    CHECK(t.speed(Link::socket).bandwidth == 50);
    CHECK(t.speed(Link::network).latency == 3);
    CHECK(t.speed(Link::network).bandwidth == 40);
}

TEST_CASE("a ring inside a node meets its slowest link; rings that leave a node together share its way out") {
    Topology t = machine();
    t.places.pop_back();
    const Grid inside = grid(2, 4, {"tp", "sp", "dp", "pp"});  // tp: ranks 0 to 3, and 4 to 7
    const RingSpeed tp = ring_speed(inside, tensor_axes, t);
    CHECK(tp.farthest == Link::node);
    CHECK(tp.latency == 3);
    CHECK(tp.seconds_per_byte == doctest::Approx(1 / 25.0));
    CHECK(tp.distance == doctest::Approx(1.5));  // socket, node, socket, and node back
    const RingSpeed dp = ring_speed(inside, data_axes, t);
    CHECK(dp.farthest == Link::network);
    CHECK(dp.latency == 10);
    CHECK(dp.seconds_per_byte == doctest::Approx(4 / 5.0));  // each of four ranks of a node sends to the other
    const RingSpeed all = ring_speed(inside, data_axes | tensor_axes, t);
    CHECK(all.seconds_per_byte == doctest::Approx(1 / 5.0));  // one ring of eight: one rank of each node leaves it
    const RingSpeed none = ring_speed(inside, Axis::sp, t);
    CHECK(none.latency == 0);
    CHECK(none.seconds_per_byte == 0);
}

TEST_CASE("assumed nodes are of neighbours, and slower between than inside") {
    const Topology t = assumed_topology(10, 4);
    CHECK(t.nodes() == 3);
    CHECK(t.link(3, 4) == Link::network);
    CHECK(t.link(8, 9) == Link::node);
    CHECK(t.speed(Link::network).bandwidth < t.speed(Link::node).bandwidth);
    CHECK(assumed_topology(3, 0).nodes() == 1);
}
