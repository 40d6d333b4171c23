// Of measured collectives, what the choices are made by.
#include "train/settle.hpp"

#include <doctest.h>

using namespace quadrille;

TEST_CASE("of each size the faster all-reduce counts, other collectives do not") {
    const std::vector<AllReduceTime> found = fastest_all_reduces({
        {MoveKind::all_reduce, Algorithm::ring, 2, 8, 3.0},
        {MoveKind::all_reduce, Algorithm::shared, 2, 8, 2.0},
        {MoveKind::all_gather, Algorithm::ring, 2, 8, 1.0},
        {MoveKind::all_reduce, Algorithm::ring, 4, 8, 5.0},
    });
    REQUIRE(found.size() == 2);
    CHECK(found[0].ranks == 2);
    CHECK(found[0].seconds == 2.0);
    CHECK(found[1].ranks == 4);
}
