// What is said of a group of ranks whose collectives do not go as the input asks.
#include "train/collectives.hpp"

#include <doctest.h>

using namespace quadrille;

TEST_CASE("a group that got what was asked is not told of; the others with the reason") {
    CHECK(sentence("dp", {Algorithm::shared, Instead::as_asked}).empty());
    CHECK(sentence("tp", {Algorithm::shared, Instead::one_node}) == "over tp: shared, since its ranks are on one node");
    CHECK(sentence("dp", {Algorithm::ring, Instead::several_nodes}) == "over dp: ring, since its ranks are on several nodes");
    CHECK(sentence("dp+sp", {Algorithm::ring, Instead::uneven_nodes}) ==
          "over dp+sp: ring, since its ranks are not several, and as many, on each of its nodes");
    CHECK(sentence("dp", {Algorithm::ring, Instead::no_room, 13 << 19, 1 << 20}) ==
          "over dp: ring, since it takes 6.50 MiB of shared memory of each rank, and /dev/shm has 1.00 MiB left for one");
}
