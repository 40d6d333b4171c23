// Sends and receives between stages: large ones crossing in any order, receives posted long before, two messages between the
// same two ranks told apart by what they are, and a mismatch that is noticed instead of computed with.
#include "mpi_main.hpp"

#include <deque>

#include "comm_moves.hpp"

namespace quadrille::test {
namespace {

constexpr std::int64_t large = (16 << 20) / 4;  // above any eager limit

struct Message {
    Move move;
    std::vector<float> data;
    MoveTimes times;
};

float content(int from, int to, const MessageTag& tag, std::int64_t i) {
    return value<float>(random_key(from, to, tag.kind, tag.chunk, tag.microbatch), 0, i);
}

// A send to `peer`, or a receive from it, of `count` elements.
void make(Message& m, bool send, int peer, MessageTag tag, std::int64_t count) {
    m.move.kind = send ? MoveKind::send : MoveKind::receive;
    m.move.peer = peer;
    m.move.message = tag;
    m.data.assign(static_cast<std::size_t>(count), -7.0F);
    if (send)
        for (std::int64_t i = 0; i < count; ++i) m.data[static_cast<std::size_t>(i)] = content(world().rank(), peer, tag, i);
    m.move.segments = {{send ? m.data.data() : nullptr, send ? nullptr : m.data.data(), count}};
}

bool correct(const Message& m) {
    const bool send = m.move.kind == MoveKind::send;
    const int from = send ? world().rank() : m.move.peer, to = send ? m.move.peer : world().rank();
    for (std::size_t i = 0; i < m.data.size(); ++i)
        if (m.data[i] != content(from, to, m.move.message, static_cast<std::int64_t>(i))) return false;
    return true;
}

int partner() { return world().rank() ^ 1; }
bool paired() { return partner() < world().size(); }

}  // namespace

TEST_CASE("large messages that cross do not wait for each other, whichever is started first") {
    Engine engine(world());
    if (paired()) {
        for (const bool send_first : {true, false}) {
            Message out, in;
            make(out, true, partner(), {0, 0, 1}, large);
            make(in, false, partner(), {0, 0, 1}, large);
            Message& first = send_first ? out : in;
            Message& second = send_first ? in : out;
            const Ticket a = engine.start(first.move, {}, &first.times), b = engine.start(second.move, {}, &second.times);
            engine.wait(a);
            engine.wait(b);
            CHECK(correct(in));
            CHECK(correct(out));
            CHECK(out.times.sent_bytes == large * 4);
            CHECK(in.times.sent_bytes == 0);
            CHECK(in.times.peer_entered <= in.times.finished);
        }
    }
    world().barrier();
}

TEST_CASE("a send completes though its receive is posted late") {
    Engine engine(world());
    Message message;
    const int to = world().size() - 1;
    if (world().size() > 1 && world().rank() == 0) {
        make(message, true, to, {1, 0, 0}, large);
        const Ticket ticket = engine.start(message.move);
        world().barrier();
        engine.wait(ticket);
    } else {
        world().barrier();
        if (world().rank() == to && to > 0) {
            make(message, false, 0, {1, 0, 0}, large);
            engine.run(message.move, &message.times);
            CHECK(correct(message));
            CHECK(message.times.peer_entered < message.times.entered);
        }
    }
    world().barrier();
}

// Interleaved pipelines of two stages: next and previous are the same rank, activations and gradients of several chunks and
// micro-batches are under way at once, and receives stand where the sender sends.
TEST_CASE("many messages each way between neighbours of a ring of stages") {
    for (const std::int64_t max_count : {0, 100}) {
        EngineOptions options;
        options.max_count = max_count;
        Engine engine(world(), options);
        const int size = world().size(), next = (world().rank() + 1) % size, previous = (world().rank() + size - 1) % size;
        if (size > 1) {
            std::deque<Message> messages;
            std::vector<Ticket> tickets;
            for (int microbatch = 0; microbatch < 6; ++microbatch) {
                for (int chunk = 0; chunk < 4; ++chunk) {
                    const std::int64_t count = max_count > 0 ? 1 + 333 * chunk : 1 + 40000 * chunk;
                    const MessageTag forward{0, chunk, microbatch}, backward{1, chunk, microbatch};
                    make(messages.emplace_back(), false, previous, forward, count);
                    make(messages.emplace_back(), true, previous, backward, count + 1);
                    make(messages.emplace_back(), true, next, forward, count);
                    make(messages.emplace_back(), false, next, backward, count + 1);
                }
            }
            for (Message& m : messages) tickets.push_back(engine.start(m.move, {}, &m.times));
            for (std::size_t k = tickets.size(); k-- > 0;) engine.wait(tickets[k]);
            for (const Message& m : messages) {
                CHECK(correct(m));
                if (m.move.kind == MoveKind::receive) CHECK(m.times.peer_entered <= m.times.finished);
            }
        }
        world().barrier();
    }
}

TEST_CASE("a send after a receive waits for it") {
    Engine engine(world());
    const int size = world().size(), rank = world().rank();
    if (size > 1) {
        // A token that goes round: each rank passes on what it received.
        Message in, out;
        make(in, false, (rank + size - 1) % size, {2, 0, 0}, 1000);
        make(out, true, (rank + 1) % size, {2, 0, 0}, 1000);
        out.data.assign(out.data.size(), 1.0F);
        if (rank != 0) out.move.segments[0].in = in.data.data();
        std::vector<Ticket> after;
        const Ticket received = engine.start(in.move);
        if (rank != 0) after = {received};
        const Ticket sent = engine.start(out.move, after);
        engine.wait(sent);
        engine.wait(received);
        CHECK(in.data == std::vector<float>(1000, 1.0F));
    }
    world().barrier();
}

}  // namespace quadrille::test
