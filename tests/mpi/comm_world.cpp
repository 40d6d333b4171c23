// The blocking collectives of set-up, and what a rank knows of its surroundings.
#include "mpi_main.hpp"

#include "comm/evidence_pages.hpp"

#include <sched.h>
#include <unistd.h>

#include <cmath>

namespace quadrille::test {

TEST_CASE("votes, broadcast and gather") {
    const int rank = world().rank(), size = world().size();
    CHECK(world().min(rank - 5) == -5);
    CHECK(world().max(rank) == size - 1);
    if (world().node_size() == size) CHECK(world().node_sum(rank + 1) == size * (size + 1) / 2);
    CHECK(world().all(true));
    CHECK_FALSE(world().all(rank != 0));
    CHECK(world().broadcast(rank == 0 ? "from rank 0" : "other") == "from rank 0");
    CHECK(world().broadcast("").empty());

    const double mine[] = {rank + 0.5, -1.0};
    const std::vector<double> all = world().gather(std::span<const double>(mine));
    const std::vector<std::string> texts = world().gather(std::string(static_cast<std::size_t>(rank), 'x'));
    if (rank != 0) {
        CHECK(all.empty());
        CHECK(texts.empty());
        return;
    }
    CHECK(all.size() == static_cast<std::size_t>(2 * size));
    REQUIRE(texts.size() == static_cast<std::size_t>(size));
    for (int r = 0; r < size; ++r) {
        CHECK(all[static_cast<std::size_t>(2 * r)] == r + 0.5);
        CHECK(texts[static_cast<std::size_t>(r)].size() == static_cast<std::size_t>(r));
    }
}

TEST_CASE("texts of any lengths are gathered whole, in messages of any size") {
    const auto text = [](int rank) {
        return std::string(static_cast<std::size_t>(rank * 5 % 8), static_cast<char>('a' + rank)) + (rank % 2 ? "" : "end");
    };
    for (const std::int64_t piece : {1, 2, 3, 1000}) {
        const std::vector<std::string> all = world().gather(text(world().rank()), piece);
        if (world().rank() != 0) continue;
        REQUIRE(all.size() == static_cast<std::size_t>(world().size()));
        for (int r = 0; r < world().size(); ++r) CHECK(all[static_cast<std::size_t>(r)] == text(r));
    }
}

TEST_CASE("surroundings") {
    cpu_set_t mask;
    REQUIRE(sched_getaffinity(0, sizeof mask, &mask) == 0);
    CHECK(world().cpus() == CPU_COUNT(&mask));
    CHECK(world().node_size() >= 1);
    CHECK(world().node_size() <= world().size());
    int together = 0;
    for (int r = 0; r < world().size(); ++r) together += world().pages().node_of(r) == world().pages().node_of(world().rank());
    CHECK(together == world().node_size());
    CHECK(world().cpu_sharers() >= 1);
    CHECK(world().cpu_sharers() <= world().node_size());
    const bool unbound = world().cpus() == sysconf(_SC_NPROCESSORS_ONLN);
    if (world().all(unbound)) CHECK(world().cpu_sharers() == world().node_size());
    CHECK_FALSE(world().host().empty());
    CHECK_FALSE(World::library().empty());
    CHECK(world().clock_offset(0) == 0.0);
    for (int r = 0; r < world().size(); ++r) CHECK(std::isfinite(world().clock_offset(r)));
}

TEST_CASE("an MPI error is a sentence with MPI's text and the place") {
    try {
        mpi_check(MPI_ERR_COUNT);
        FAIL("no error");
    } catch (const Error& error) {
        CHECK(error.exit() == Exit::rank_failed);
        CHECK(std::string(error.what()).find("comm_world.cpp") != std::string::npos);
    }
}

}  // namespace quadrille::test
