// The copy queues of one rank: what is over is over and forgotten, and what fails ends what waits.
#include "mpi_main.hpp"
#include "cpu/device.hpp"
#include "runtime/copies.hpp"

#include <cstring>

namespace quadrille::test {

namespace {

constexpr std::int64_t bytes = 4096;

TierMove between(Queue queue, Tier from, Tier to) { return {queue, {from, 0, bytes}, {to, 0, bytes}}; }

}  // namespace

TEST_CASE("a thousand copies there and back, of which nothing stays") {
    CpuDevice device(1);
    Arena arena(device, {bytes, bytes, 0}, "the test", 0, 1);
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

TEST_CASE("a copy that waits for a message lets later ones pass") {
    if (world().size() != 2) return;
    CpuDevice device(1);
    Arena arena(device, {2 * bytes, bytes, 0}, "the test", 0, 1);
    Engine engine(world());
    Copies copies(arena, engine);
    std::vector<float> from(bytes / 4, 2.5f);
    Move receive, send;
    receive.kind = MoveKind::receive;
    send.kind = MoveKind::send;
    receive.peer = send.peer = 1 - world().rank();
    receive.segments = {{nullptr, arena.data(Tier::host), bytes / 4}};
    send.segments = {{from.data(), nullptr, bytes / 4}};
    const Ticket arrives = engine.start(receive);
    MoveTimes late, soon;
    const CopyTicket waits = copies.start(between(Queue::copy_in, Tier::host, Tier::device), {arrives}, {}, &late);
    copies.wait(copies.start({Queue::copy_in, {Tier::host, 0, bytes}, {Tier::device, bytes, 2 * bytes}}, {}, {}, &soon));
    const Ticket sent = engine.start(send);
    copies.wait(waits);
    engine.wait(sent);
    CHECK(late.entered > soon.finished);
    CHECK(reinterpret_cast<const float*>(arena.data(Tier::device))[bytes / 4 - 1] == 2.5f);
}

TEST_CASE("after a failure elsewhere nothing starts any more, and the first failure is told") {
    CpuDevice device(1);
    Arena arena(device, {bytes, bytes, 0}, "the test", 0, 1);
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
