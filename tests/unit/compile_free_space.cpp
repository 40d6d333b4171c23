// The free extents, by hand and against a plain bitmap.
#include "base/random.hpp"
#include "compile/free_space.hpp"

#include <doctest.h>

#include <algorithm>
#include <vector>

using namespace quadrille;

TEST_CASE("the smallest hole that fits, the lowest, and the end of the highest") {
    const auto with_holes = [] {
        FreeSpace space(0);
        CHECK(space.take(100, Fit::best) == 0);
        space.give(10, 20);
        space.give(40, 8);
        space.give(60, 25);
        return space;
    };
    CHECK(with_holes().take(8, Fit::best) == 40);
    CHECK(with_holes().take(9, Fit::best) == 10);
    CHECK(with_holes().take(8, Fit::lowest) == 10);
    CHECK(with_holes().take(21, Fit::lowest) == 60);
    CHECK(with_holes().take(8, Fit::highest) == 77);
    CHECK(with_holes().take(26, Fit::best) == 100);
}

TEST_CASE("neighbours grow together, and the last reaches past the end") {
    FreeSpace space(64);
    CHECK(space.take(30, Fit::best) == 64);
    space.give(84, 10);
    space.give(64, 10);
    space.give(74, 10);
    CHECK(space.take(40, Fit::best) == 64);  // all three, and ten more
    space.open(200);
    CHECK(space.take(96, Fit::highest) == 104);
    space.open(50);  // below the end: nothing
    CHECK(space.take(1, Fit::best) == 200);
}

TEST_CASE("whatever is taken and given, nothing is handed out twice") {
    const std::uint64_t key = random_key(1);
    std::uint64_t drawn = 0;
    const auto below = [&](std::uint64_t n) { return static_cast<std::int64_t>(random_bits(key, drawn++) % n); };
    FreeSpace space(0);
    std::vector<bool> used(100000, false);
    std::vector<std::pair<std::int64_t, std::int64_t>> held;
    int twice = 0;
    for (int k = 0; k < 5000; ++k) {
        if (!held.empty() && below(5) < 2) {
            const auto at = held.begin() + below(held.size());
            space.give(at->first, at->second);
            std::fill_n(used.begin() + at->first, at->second, false);
            held.erase(at);
            continue;
        }
        const std::int64_t bytes = 1 + below(30), offset = space.take(bytes, static_cast<Fit>(below(3)));
        REQUIRE(offset + bytes <= static_cast<std::int64_t>(used.size()));
        twice += std::find(used.begin() + offset, used.begin() + offset + bytes, true) != used.begin() + offset + bytes;
        std::fill_n(used.begin() + offset, bytes, true);
        held.emplace_back(offset, bytes);
    }
    CHECK(twice == 0);
}
