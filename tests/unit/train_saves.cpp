// How long a stop takes.
#include "train/saves.hpp"

#include <doctest.h>

using namespace quadrille;

TEST_CASE("a stop takes a save, behind training the one under way too, and the removals before it and behind it") {
    CheckpointConfig c;
    CHECK(seconds_to_stop(c, 1000, 10, 0, 3600) == doctest::Approx(2 + 1.5 * 10));
    CHECK(seconds_to_stop(c, 1000, 10, 8, 3600) == doctest::Approx(2 + 1.5 * (10 + 8 + 8)));
    c.interval = 1;
    c.asynchronous = true;
    CHECK(seconds_to_stop(c, 1000, 10, 8, 3600) == doctest::Approx(2 + 1.5 * (20 + 8 + 8)));
}

TEST_CASE("where no save has been seen, its bytes tell, and at most a part of the time left") {
    CHECK(seconds_to_stop({}, 2'000'000'000, 0, 0, 3600) == doctest::Approx(2 + 1.5 * 10));
    CHECK(seconds_to_stop({}, 2'000'000'000, 0, 0, 20) == doctest::Approx(2 + 1.5 * 5));
}
