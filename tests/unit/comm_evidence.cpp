#include "comm/evidence.hpp"

#include <doctest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

using namespace quadrille;

namespace {

struct Book {
    std::unique_ptr<EvidencePage> page = std::make_unique<EvidencePage>();
    Evidence evidence{*page};

    int in_flight() const {
        int n = 0;
        for (const EvidenceCopy::Entry& e : copy_of(*page).ring) n += e.sequence > 0 && e.left == 0;
        return n;
    }
};

Move move(std::int32_t line, std::int64_t count = 3) {
    Move m;
    m.kind = MoveKind::all_gather;
    m.dtype = DType::bf16;
    m.segments = {{nullptr, nullptr, count}, {nullptr, nullptr, 1}};
    m.origin = {1, line, {Axis::tp, Axis::sp}};
    return m;
}

}  // namespace

TEST_CASE("a move's origin survives as one number, and so does none") {
    for (const Origin& o : {Origin{}, Origin{0, 0, {}}, Origin{1, 2147483600, {Axis::pp, Axis::tq}}, Origin{0, 67406, Axis::shard}})
        CHECK(unpacked(packed(o)) == o);
}

TEST_CASE("lanes are known by their members, messages by their direction") {
    const std::vector<int> a = {0, 1}, b = {1, 0}, c = {0, 1, 2};
    CHECK(group_key(a) == group_key(std::vector<int>{0, 1}));
    CHECK(group_key(a) != group_key(b));
    CHECK(group_key(a) != group_key(c));
    CHECK(group_key(a) > 0);
    CHECK_FALSE(is_message_key(group_key(a)));
    const std::int64_t m = message_key(16383, 5);
    CHECK(is_message_key(m));
    CHECK(m != message_key(5, 16383));
    CHECK(ends_of(m) == std::array{16383, 5});

    Book book;
    const int first = book.evidence.lane(m, 2);
    CHECK(book.evidence.lane(group_key(a), 2) != first);
    CHECK(book.evidence.lane(m, 2) == first);
}

TEST_CASE("the ring has the last moves, with what they are") {
    Book book;
    const int lane = book.evidence.lane(77, 4);
    constexpr auto size = static_cast<std::int64_t>(EvidenceCopy::ring_size);
    for (std::int64_t k = 1; k <= 3 * size + 5; ++k) {
        const int place = book.evidence.entered(lane, k, move(static_cast<std::int32_t>(k)), static_cast<double>(k));
        book.evidence.left(place, static_cast<double>(k) + 0.5);
    }
    const EvidenceCopy copy = copy_of(*book.page);
    CHECK(copy.lanes[static_cast<std::size_t>(lane)].entered == 3 * size + 5);
    CHECK(copy.lanes[static_cast<std::size_t>(lane)].members == 4);
    std::int64_t least = 1 << 20, most = 0;
    for (const EvidenceCopy::Entry& e : copy.ring) {
        least = std::min(least, e.sequence), most = std::max(most, e.sequence);
        CHECK(e.lane == 77);
        CHECK(e.kind == static_cast<std::int64_t>(MoveKind::all_gather));
        CHECK(e.bytes == 8);
        CHECK(unpacked(e.origin) == Origin{1, static_cast<std::int32_t>(e.sequence), {Axis::tp, Axis::sp}});
        CHECK(e.left == e.entered + 0.5);
    }
    CHECK(least == 2 * size + 6);
    CHECK(most == 3 * size + 5);
}

TEST_CASE("a move in flight keeps its place whatever comes after it") {
    Book book;
    const int lane = book.evidence.lane(77, 2), other = book.evidence.lane(78, 2);
    const int stuck = book.evidence.entered(lane, 41, move(812), 10.0);
    for (int k = 1; k < 1000; ++k) book.evidence.left(book.evidence.entered(other, k, move(k), k), k);
    CHECK(book.in_flight() == 1);
    const EvidenceCopy::Entry e = copy_of(*book.page).ring[static_cast<std::size_t>(stuck)];
    CHECK(e.sequence == 41);
    CHECK(unpacked(e.origin).line == 812);
    CHECK(e.entered == 10.0);
}

TEST_CASE("more moves in flight, or more lanes, than there is room for are counted or left out") {
    Book book;
    const int lane = book.evidence.lane(77, 2);
    std::vector<int> places;
    for (int k = 1; k <= 200; ++k) places.push_back(book.evidence.entered(lane, k, move(k), k));
    CHECK(book.in_flight() == static_cast<int>(EvidenceCopy::ring_size));
    CHECK(copy_of(*book.page).lanes[0].entered == 200);
    for (const int place : places) book.evidence.left(place, 300);
    CHECK(book.in_flight() == 0);

    for (std::size_t k = 1; k < EvidenceCopy::most_lanes; ++k)
        CHECK(book.evidence.lane(100 + static_cast<std::int64_t>(k), 2) == static_cast<int>(k));
    CHECK(book.evidence.lane(1000, 2) == -1);
    CHECK(book.evidence.entered(-1, 1, move(1), 1) == -1);
}

TEST_CASE("whatever ends is a beat") {
    Book book;
    std::int64_t pulse = 0;
    const auto beats = [&] { return book.page->pulse.load() > std::exchange(pulse, book.page->pulse.load()); };
    CHECK_FALSE(beats());
    book.evidence.beat();
    CHECK(beats());
    book.evidence.doing(Doing::reads_data, 7, 1.0);
    CHECK(beats());
    const int place = book.evidence.entered(book.evidence.lane(5, 2), 1, move(0), 1);
    CHECK(beats());
    book.evidence.left(place, 2);
    CHECK(beats());
    {
        const Evidence::Vote vote(book.evidence);
        CHECK(beats());
        CHECK(book.page->votes.load() == 1);
        CHECK(book.page->voting_since.load() > 0);
    }
    CHECK(beats());
    CHECK(book.page->voting_since.load() == 0);
}
