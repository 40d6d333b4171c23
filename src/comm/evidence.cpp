#include "comm/evidence.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/random.hpp"
#include "comm/world.hpp"

namespace quadrille {
namespace {

static_assert(std::atomic<std::int64_t>::is_always_lock_free && std::atomic<double>::is_always_lock_free, "processes share these");

constexpr auto relaxed = std::memory_order_relaxed;
constexpr std::int64_t message_mark = std::int64_t{1} << 62;

// Processes with different numbers here know each other by different ids.
std::int64_t process_space() {
    struct stat space{};
    return stat("/proc/self/ns/pid", &space) == 0 ? static_cast<std::int64_t>(space.st_ino) : 0;
}

// A place in the ring for one more move: the next whose move has left. -1 where all are in flight.
int free_place(EvidencePage& page) {
    const auto size = static_cast<std::int64_t>(page.ring.size());
    const std::int64_t first = page.next.load(relaxed);
    for (std::int64_t k = 0; k < size; ++k) {
        const std::int64_t place = (first + k) % size;
        const EvidencePage::Entry& entry = page.ring[static_cast<std::size_t>(place)];
        if (entry.sequence.load(relaxed) != 0 && entry.left.load(relaxed) == 0) continue;
        page.next.store((place + 1) % size, relaxed);
        return static_cast<int>(place);
    }
    return -1;
}

}  // namespace

std::int64_t group_key(std::span<const int> ranks) {
    std::uint64_t hash = 0;
    for (const int rank : ranks) hash = random_key(hash, rank);
    return static_cast<std::int64_t>(hash % static_cast<std::uint64_t>(message_mark - 1)) + 1;
}

std::int64_t message_key(int sender, int receiver) { return message_mark | std::int64_t{sender} << 31 | receiver; }

bool is_message_key(std::int64_t key) { return (key & message_mark) != 0; }

std::array<int, 2> ends_of(std::int64_t key) {
    constexpr std::int64_t rank = (std::int64_t{1} << 31) - 1;
    return {static_cast<int>(key >> 31 & rank), static_cast<int>(key & rank)};
}

std::int64_t packed(const Origin& origin) {
    return std::int64_t{origin.program + 1} << 40 | std::int64_t{origin.axes.bits} << 32 | (std::int64_t{origin.line} + 1);
}

Origin unpacked(std::int64_t o) {
    const AxisSet axes = AxisSet::of_bits(static_cast<unsigned>(o >> 32 & 0xff));
    return {static_cast<std::int32_t>(o >> 40) - 1, static_cast<std::int32_t>((o & 0xffffffff) - 1), axes};
}

EvidenceCopy copy_of(const EvidencePage& p) {
    EvidenceCopy c{};
    const auto take = [](auto& to, const auto& from) { to = from.load(relaxed); };
    take(c.process, p.process), take(c.process_space, p.process_space), take(c.closed, p.closed), take(c.spoken, p.spoken);
    take(c.pulse, p.pulse), take(c.still, p.still), take(c.doing, p.doing), take(c.about, p.about), take(c.since, p.since);
    take(c.votes, p.votes), take(c.voting_since, p.voting_since), take(c.lane_count, p.lane_count), take(c.next, p.next);
    for (std::size_t k = 0; k < c.lanes.size(); ++k) {
        take(c.lanes[k].key, p.lanes[k].key), take(c.lanes[k].members, p.lanes[k].members), take(c.lanes[k].entered, p.lanes[k].entered);
    }
    for (std::size_t k = 0; k < c.ring.size(); ++k) {
        EvidenceCopy::Entry& to = c.ring[k];
        const EvidencePage::Entry& from = p.ring[k];
        take(to.lane, from.lane), take(to.sequence, from.sequence), take(to.origin, from.origin), take(to.kind, from.kind);
        take(to.bytes, from.bytes), take(to.entered, from.entered), take(to.left, from.left);
    }
    return c;
}

Evidence::Evidence(EvidencePage& page) : page_(&page) {
    page.process.store(getpid(), relaxed);
    page.process_space.store(process_space(), relaxed);
}

void Evidence::doing(Doing what, std::int64_t about, double now) {
    page_->doing.store(static_cast<std::int64_t>(what), relaxed);
    page_->about.store(about, relaxed);
    page_->since.store(now, relaxed);
    beat();
}

int Evidence::lane(std::int64_t key, std::int64_t members) {
    const std::int64_t count = page_->lane_count.load(relaxed);
    for (std::int64_t k = 0; k < count; ++k)
        if (page_->lanes[static_cast<std::size_t>(k)].key.load(relaxed) == key) return static_cast<int>(k);
    if (count == static_cast<std::int64_t>(page_->lanes.size())) return -1;
    EvidencePage::Lane& lane = page_->lanes[static_cast<std::size_t>(count)];
    lane.key.store(key, relaxed);
    lane.members.store(members, relaxed);
    page_->lane_count.store(count + 1, relaxed);
    return static_cast<int>(count);
}

int Evidence::entered(int lane, std::int64_t sequence, const Move& move, double now) {
    if (lane < 0) return -1;
    EvidencePage::Lane& at = page_->lanes[static_cast<std::size_t>(lane)];
    at.entered.store(sequence, relaxed);
    beat();
    const int place = free_place(*page_);
    if (place < 0) return place;
    EvidencePage::Entry& entry = page_->ring[static_cast<std::size_t>(place)];
    std::int64_t bytes = 0;
    for (const Segment& segment : move.segments) bytes += segment.count * bytes_of(move.dtype);
    entry.lane.store(at.key.load(relaxed), relaxed);
    entry.sequence.store(sequence, relaxed);
    entry.origin.store(packed(move.origin), relaxed);
    entry.kind.store(static_cast<std::int64_t>(move.kind), relaxed);
    entry.bytes.store(bytes, relaxed);
    entry.entered.store(now, relaxed);
    entry.left.store(0, relaxed);
    return place;
}

void Evidence::left(int place, double now) {
    beat();
    if (place >= 0) page_->ring[static_cast<std::size_t>(place)].left.store(now, relaxed);
}

Evidence::Vote::Vote(Evidence& evidence) : evidence_(evidence) {
    evidence.page_->votes.fetch_add(1, relaxed);
    evidence.page_->voting_since.store(now(), relaxed);
    evidence.beat();
}

Evidence::Vote::~Vote() {
    evidence_.page_->voting_since.store(0, relaxed);
    evidence_.beat();
}

}  // namespace quadrille
