// Transfers over an engine that is a toy: how requests are cut, in which order and how many at once they start, and what becomes of short
// transfers, interruptions and errors.
#include <doctest.h>

#include <algorithm>
#include <deque>

#include "unit/storage_fixture.hpp"

namespace quadrille {
namespace {

using namespace storage_test;

constexpr std::int64_t unit = 512;

// A file in memory. `script` holds the results of the next blocks; 0 bytes or more: so many are moved; `last_first`: ends come in reverse.
class ToyEngine final : public BlockEngine {
  public:
    explicit ToyEngine(std::int64_t bytes, int depth = 4) : file(static_cast<std::size_t>(bytes)), depth_(depth) {}
    int depth() const override { return depth_; }
    void start(std::span<const Block> blocks) override {
        for (const Block& b : blocks) {
            started.push_back(b);
            in_flight.push_back(b);
        }
        most = std::max(most, in_flight.size());
    }
    void collect(bool wait, std::vector<BlockEnd>& ends) override {
        if (!wait && !eager) return;
        REQUIRE(!in_flight.empty());
        if (mute) throw Error(Exit::io_failed, "no answer");
        if (last_first) std::reverse(in_flight.begin(), in_flight.end());
        for (std::size_t n = one_at_once ? 1 : in_flight.size(); n > 0; --n) {
            ends.push_back({in_flight.front().slot, move(in_flight.front())});
            in_flight.pop_front();
        }
    }
    std::vector<std::byte> file;
    std::vector<Block> started;
    std::deque<Block> in_flight;
    std::deque<std::int64_t> script;
    std::size_t most = 0;
    bool last_first = false, one_at_once = false, eager = true, mute = false;

  private:
    std::int64_t move(const Block& b) {
        std::int64_t result = b.bytes;
        if (!script.empty()) {
            result = std::min(script.front(), b.bytes);
            script.pop_front();
        }
        for (std::int64_t i = 0; i < result; ++i) {
            std::byte& stored = file[static_cast<std::size_t>(b.offset + i)];
            b.direction == Direction::read ? b.memory[i] = stored : stored = b.memory[i];
        }
        return result;
    }
    int depth_;
};

struct Toy {
    explicit Toy(std::int64_t bytes = 64 * unit, int depth = 4, std::int64_t block = 2 * unit)
        : engine(bytes, depth), bounce(aligned_memory(depth * block, "for a test")),
          transfers(engine, {"toy", bytes, block, unit, unit}, {bounce.get(), static_cast<std::size_t>(depth * block)}) {}
    ToyEngine engine;
    AlignedMemory bounce;
    Transfers transfers;
};

std::string message(const std::function<void()>& act) {
    try {
        act();
    } catch (const Error& e) {
        CHECK(e.exit() == Exit::io_failed);
        return e.what();
    }
    return "no error";
}

TEST_CASE("requests start in order, block by block, as many at once as there are slots") {
    Toy toy;
    const Bytes a(1, 7 * unit), b(2, 5 * unit);
    const TransferTicket first = toy.transfers.submit(Direction::write, 0, a.data(), 7 * unit);
    const TransferTicket second = toy.transfers.submit(Direction::write, 16 * unit, b.data(), 5 * unit);
    CHECK(toy.engine.started.size() == 4);
    toy.engine.one_at_once = true;
    toy.transfers.wait(first);
    CHECK_FALSE(toy.transfers.done(second));
    CHECK(toy.engine.most == 4);
    toy.transfers.wait(second);
    std::vector<std::int64_t> offsets;
    for (const Block& block : toy.engine.started) offsets.push_back(block.offset / unit);
    CHECK(offsets == std::vector<std::int64_t>{0, 2, 4, 6, 16, 18, 20});
    CHECK(std::memcmp(toy.engine.file.data(), a.data(), 7 * unit) == 0);
    CHECK(std::memcmp(toy.engine.file.data() + 16 * unit, b.data(), 5 * unit) == 0);
    CHECK_FALSE(toy.transfers.poll());
}

TEST_CASE("memory that direct access takes is used as it is, all else goes through bounce memory") {
    Toy toy;
    const Bytes even(1, 4 * unit), odd(2, 4 * unit, 64), tail(3, unit + 7);
    toy.transfers.wait(toy.transfers.submit(Direction::write, 0, even.data(), 4 * unit));
    CHECK(toy.engine.started[0].memory == even.data());
    toy.transfers.wait(toy.transfers.submit(Direction::write, 8 * unit, odd.data(), 4 * unit));
    CHECK(toy.engine.started[2].memory >= toy.bounce.get());
    toy.transfers.wait(toy.transfers.submit(Direction::write, 16 * unit, tail.data(), unit + 7));
    CHECK(toy.engine.started[4].bytes == 2 * unit);
    CHECK(toy.engine.file[18 * unit - 1] == std::byte{0});  // the rest of the region's last unit
    Bytes back(4, unit + 7, 13);
    toy.transfers.wait(toy.transfers.submit(Direction::read, 16 * unit, back.data(), unit + 7));
    CHECK(back.equals(tail));
    CHECK(back.strips_are_whole());
}

TEST_CASE("bytes count as moved when the engine says so, and padding does not count") {
    Toy toy;
    const Bytes given(1, 5 * unit + 7);
    const auto moved = std::make_shared<std::int64_t>(0);
    const TransferTicket ticket = toy.transfers.submit(Direction::write, 0, given.data(), 5 * unit + 7, moved);
    CHECK(*moved == 0);
    toy.engine.one_at_once = true;
    toy.transfers.poll();
    CHECK(*moved == 2 * unit);
    toy.engine.script = {unit};  // half of the second block
    toy.transfers.poll();
    CHECK(*moved == 2 * unit);
    toy.transfers.wait(ticket);
    CHECK(*moved == 5 * unit + 7);
}

TEST_CASE("an empty request is done at once") {
    Toy toy;
    const Bytes some(1, unit);
    const TransferTicket before = toy.transfers.submit(Direction::write, 0, some.data(), unit);
    const TransferTicket empty = toy.transfers.submit(Direction::read, 64 * unit, nullptr, 0);
    CHECK(toy.transfers.done(empty));
    toy.transfers.wait(before);
    CHECK(toy.engine.started.size() == 1);
}

TEST_CASE("short transfers go on where they stopped, interrupted ones again") {
    for (const std::int64_t shift : {0, 5}) {  // with and without bounce memory
        Toy toy(64 * unit, 2, 8 * unit);
        toy.engine.last_first = true;
        const Bytes given(1, 20 * unit, shift), got(2, 20 * unit, shift);
        toy.engine.script = {unit, -EINTR, 3 * unit + 100, -EAGAIN, 7, 2 * unit, unit - 1, -EINTR, 5 * unit};
        toy.transfers.wait(toy.transfers.submit(Direction::write, 0, given.data(), 20 * unit));
        CHECK(toy.engine.script.empty());
        CHECK(std::memcmp(toy.engine.file.data(), given.data(), 20 * unit) == 0);
        toy.engine.script = {-EAGAIN, 2 * unit + 1, -EINTR, 1, unit, 6 * unit, -EAGAIN};
        const auto moved = std::make_shared<std::int64_t>(0);
        toy.transfers.wait(toy.transfers.submit(Direction::read, 0, got.data(), 20 * unit, moved));
        CHECK(*moved == 20 * unit);
        CHECK(got.equals(given));
        CHECK(got.strips_are_whole());
        for (const Block& b : toy.engine.started) CHECK(b.offset % unit == 0);
    }
}

TEST_CASE("an error names file, bytes and place, is told again by every call, and leaves nothing in flight") {
    Toy toy;
    const Bytes given(1, 16 * unit);
    const TransferTicket first = toy.transfers.submit(Direction::write, 4 * unit, given.data(), 16 * unit);
    toy.engine.script = {2 * unit, -EIO, -ENOSPC};
    toy.engine.one_at_once = true;
    const std::string said = message([&] { toy.transfers.wait(first); });
    CHECK(said == "toy: writing 1024 bytes at byte 3072 of 32768 failed: Input/output error");
    CHECK(toy.engine.in_flight.empty());
    CHECK(message([&] { toy.transfers.poll(); }) == said);
    CHECK(message([&] { toy.transfers.done(first); }) == said);
    CHECK(message([&] { toy.transfers.wait(first); }) == said);
    CHECK(message([&] { toy.transfers.submit(Direction::read, 0, given.data(), unit); }) == said);
}

TEST_CASE("what moves nothing ends with an error instead of going round for ever") {
    const Bytes memory(1, 2 * unit);
    Toy end;
    end.engine.script = {unit, 0};
    CHECK(message([&] { end.transfers.wait(end.transfers.submit(Direction::read, 0, memory.data(), 2 * unit)); }) ==
          "toy: reading 512 bytes at byte 512 of 32768 failed: short read: the file ends there");
    Toy nothing;
    nothing.engine.script = {0};
    CHECK(says(message([&] { nothing.transfers.wait(nothing.transfers.submit(Direction::write, 0, memory.data(), unit)); }), "short write"));
    Toy interrupted;
    interrupted.engine.script.assign(2000, -EINTR);
    CHECK(says(message([&] { interrupted.transfers.wait(interrupted.transfers.submit(Direction::write, 0, memory.data(), unit)); }),
               "Interrupted system call, 1001 times"));
}

TEST_CASE("an engine that gives no answers ends with an error, here and in the destructor") {
    Toy toy;
    const Bytes memory(1, 2 * unit);
    const TransferTicket ticket = toy.transfers.submit(Direction::read, 0, memory.data(), 2 * unit);
    toy.engine.mute = true;
    const std::string said = message([&] { toy.transfers.wait(ticket); });
    CHECK(said == "toy: blocks lost in flight: 1, of up to 1024 bytes each: no answer");
    CHECK(message([&] { toy.transfers.poll(); }) == said);
}

TEST_CASE("a request outside its file, or at a place that no direct transfer takes, is a mistake of the program") {
    Toy toy;
    const Bytes memory(1, 2 * unit);
    CHECK_THROWS_AS(toy.transfers.submit(Direction::read, 63 * unit, memory.data(), unit + 1), std::logic_error);
    CHECK_THROWS_AS(toy.transfers.submit(Direction::read, 1, memory.data(), 1), std::logic_error);
    CHECK_THROWS_AS(toy.transfers.done(0), std::logic_error);
}

}  // namespace
}  // namespace quadrille
