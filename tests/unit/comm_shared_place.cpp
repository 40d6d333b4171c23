// When the memory of a place may be written anew.
#include <doctest.h>

#include <array>
#include <limits>

#include "comm/shared_window.hpp"

using namespace quadrille;

TEST_CASE("a place is drained when every member has taken from both flows, past the counters' end too") {
    std::array<SharedCounters, 3> counters;
    SharedPlace place;
    CHECK(place.drained());  // nobody shares it
    for (SharedCounters& c : counters) place.parts.push_back({&c, nullptr});
    CHECK(place.drained());
    constexpr std::uint64_t almost = std::numeric_limits<std::uint64_t>::max() - 1;
    for (const std::uint64_t before : {std::uint64_t{0}, almost}) {
        for (SharedCounters& c : counters)
            for (auto& took : c.took) took.value = before;
        place.rounds = {before + 2, before + 3};
        CHECK(!place.drained());
        for (SharedCounters& c : counters) {
            CHECK(!place.drained());
            c.took[0].value = before + 2;
            CHECK(!place.drained());
            c.took[1].value = before + 3;
        }
        CHECK(place.drained());
        counters[1].took[0].value = before + 9;  // one that has gone on to later moves
        CHECK(place.drained());
    }
}
