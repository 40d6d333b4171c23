#include "ir/extents.hpp"

#include <doctest.h>

#include <stdexcept>

using namespace quadrille;

TEST_CASE("appending joins what touches and drops what is empty") {
    Extents e;
    for (const Extent& next : Extents{{4, 0}, {4, 2}, {6, 3}, {10, 1}, {9, 1}}) append(e, next);
    CHECK(e == Extents{{4, 5}, {10, 1}, {9, 1}});  // in the order given: going back starts a new run
    CHECK(total(e) == 7);
    CHECK(total({}) == 0);
}

TEST_CASE("a portion of the list that runs stand for") {
    const Extents e = {{10, 3}, {0, 2}, {20, 3}};  // 10 11 12 0 1 20 21 22
    CHECK(portion(e, 0, 8) == e);
    CHECK(portion(e, 2, 4) == Extents{{12, 1}, {0, 2}, {20, 1}});
    CHECK(portion(e, 3, 2) == Extents{{0, 2}});
    CHECK(portion(e, 4, 0).empty());
}

TEST_CASE("intersections keep the order of the first") {
    CHECK(intersection({{12, 4}, {0, 4}}, {{2, 11}}) == Extents{{12, 1}, {2, 2}});
    CHECK(intersection({{0, 10}}, {{6, 2}, {1, 3}}) == Extents{{1, 3}, {6, 2}});
    CHECK(intersection({{0, 4}}, {{4, 4}}).empty());
}

TEST_CASE("positions of a part in a whole") {
    const Extents whole = {{12, 4}, {0, 4}};  // 12 13 14 15 0 1 2 3
    CHECK(positions_in(whole, {{2, 2}}) == Extents{{6, 2}});
    CHECK(positions_in(whole, {{0, 2}, {14, 2}}) == Extents{{4, 2}, {2, 2}});
    CHECK(positions_in({{0, 2}, {2, 2}}, {{1, 2}}) == Extents{{1, 2}});  // over a seam
    CHECK(positions_in({{8, 4}, {4, 4}}, {{6, 4}}) == Extents{{6, 2}, {0, 2}});
    CHECK_THROWS_AS(positions_in(whole, {{3, 2}}), std::logic_error);
}

TEST_CASE("equal cuts") {
    CHECK(equal_cut(10, 3, 0) == Extent{0, 3});
    CHECK(equal_cut(10, 3, 1) == Extent{3, 3});
    CHECK(equal_cut(10, 3, 2) == Extent{6, 4});
    CHECK(equal_cut(2, 4, 0) == Extent{0, 0});
    CHECK(equal_cut(2, 4, 3) == Extent{1, 1});
    const std::int64_t many = (std::int64_t{1} << 62) + 1;  // count times i does not fit in 64 bits
    CHECK(equal_cut(many, 4, 3) == Extent{(std::int64_t{1} << 60) * 3, (std::int64_t{1} << 60) + 1});
}
