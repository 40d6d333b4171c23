// Rings of attention, turn by turn.
#include "compile/expand.hpp"

#include <doctest.h>

#include <algorithm>

using namespace quadrille;

TEST_CASE("a ring of more turns than 16 bits count ends, and is complete after the last") {
    constexpr int ranks = 33000;
    Chunk chunk(std::make_shared<Tables>(Grid::of_user_axes(1, 1, 1, ranks, 1, 1, {"tp", "sp", "dp", "pp"})));
    Program& p = chunk.program;
    Placement place;
    place.cuts[1] = {{Axis::sp}};
    const TensorType type({1, ranks, 1, 2}, DType::f32, place);
    const TensorId q = p.declare("q", type), k = p.declare("k", type), v = p.declare("v", type);
    Attributes a;
    a.unexpanded = true;
    p.add(Kind::attention, {q, k, v}, a, Where{Part::forward, p.tables->intern("layers.0"), 0, -1});
    expand_rings(chunk);
    const auto count = [&](Kind kind) { return std::count_if(p.ops.begin(), p.ops.end(), [kind](const Op& op) { return op.kind == kind; }); };
    CHECK(count(Kind::attention) == ranks);
    CHECK(count(Kind::redistribute) == ranks - 1);
    const auto last = std::find_if(p.ops.rbegin(), p.ops.rend(), [](const Op& op) { return op.kind == Kind::attention; });
    REQUIRE(last != p.ops.rend());
    CHECK(p.type(p.outputs(*last)[0]).covers == 0);
}
