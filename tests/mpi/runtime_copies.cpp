// The copy queues of one rank: what is over is over and forgotten, and what fails ends what waits.
#include "mpi_main.hpp"
#include "runtime/copies.hpp"

#include <cstring>

namespace quadrille::test {

namespace {

constexpr std::int64_t bytes = 4096;

TierMove between(Queue queue, Tier from, Tier to) { return {queue, {from, 0, bytes}, {to, 0, bytes}}; }

}  // namespace

TEST_CASE("a thousand copies there and back, of which nothing stays") {
    Arena arena({bytes, bytes, 0}, "the test", 0, 1);
    Engine engine(world());
    Copies copies(arena, engine);
    CopyTicket last = -1;
    for (int k = 1; k <= 1000; ++k) {
        MoveTimes out, in;
        std::memset(arena.data(Tier::device), k, bytes);
        const CopyTicket there = copies.start(between(Queue::copy_out, Tier::device, Tier::host), {}, {}, &out);
        const CopyTicket back = copies.start(between(Queue::copy_in, Tier::host, Tier::device), {}, {there}, &in);
        REQUIRE(there > last);
        REQUIRE(back > there);
        last = back;
        copies.wait(back);
        copies.wait(there);
        REQUIRE(out.sent_bytes + in.sent_bytes == 2 * bytes);
        REQUIRE(out.finished <= in.entered);
        REQUIRE(arena.data(Tier::device)[bytes - 1] == static_cast<std::byte>(k));
        REQUIRE(copies.unfinished() == 0);
    }
    copies.wait(0);  // long over
}

TEST_CASE("after a failure elsewhere nothing starts any more, and the first failure is told") {
    Arena arena({bytes, bytes, 0}, "the test", 0, 1);
    Engine engine(world());
    Copies copies(arena, engine);
    const CopyTicket done = copies.start(between(Queue::copy_out, Tier::device, Tier::host), {}, {}, nullptr);
    copies.wait(done);
    copies.fail(std::make_exception_ptr(Error(Exit::io_failed, "first")));
    copies.fail(std::make_exception_ptr(Error(Exit::io_failed, "second")));
    copies.wait(done);
    CHECK_THROWS_WITH_AS(copies.start(between(Queue::copy_out, Tier::device, Tier::host), {}, {}, nullptr), "first", Error);
}

}  // namespace quadrille::test
