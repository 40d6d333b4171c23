#include "comm/engine_state.hpp"

#include <sched.h>

#include <algorithm>

namespace quadrille {
namespace {

constexpr int collective_tags = 1 << 15, message_tags = 1 << 14;

// A tag only tells apart what may be in flight between the same ranks; where two fall together, issue order decides, and the
// header that travels with the message is compared with what is due.
int tag_of(const MessageTag& m) {
    const auto mixed = static_cast<std::uint32_t>(m.microbatch) * 61u + static_cast<std::uint32_t>(m.chunk) * 4u +
                       static_cast<std::uint32_t>(m.kind);
    return static_cast<int>(mixed % message_tags);
}

}  // namespace

void Engine::State::check_failure() {
    if (!failed.load(std::memory_order_acquire)) return;
    const std::lock_guard lock(mutex);
    std::rethrow_exception(failure);
}

void Engine::State::fail(std::exception_ptr why) {
    if (failure) return;
    failure = std::move(why);
    failed.store(true, std::memory_order_release);
    world.abandon();
}

std::unique_lock<std::mutex> Engine::State::lock_as_caller() {
    callers.fetch_add(1, std::memory_order_relaxed);
    std::unique_lock lock(mutex);
    callers.fetch_sub(1, std::memory_order_relaxed);
    return lock;
}

void Engine::State::validate(const Move& m) const {
    const bool message = m.kind == MoveKind::send || m.kind == MoveKind::receive;
    if (message) {
        require(m.peer >= 0 && m.peer < world.size(), "a stage message goes to a rank of the world");
        require(m.peer != world.rank(), "a stage message goes to another rank");
    } else {
        require(m.group >= 0 && m.group < static_cast<int>(groups.size()), "a collective move has a group of this engine");
    }
}

Lane& Engine::State::lane_of(const Move& move) {
    const bool sends = move.kind == MoveKind::send;
    if (!sends && move.kind != MoveKind::receive) return groups[static_cast<std::size_t>(move.group)].lane;
    const auto [at, made] = message_lanes.try_emplace({move.peer, sends});
    const int me = world.rank(), other = move.peer;
    if (made) at->second.evidence = world.evidence().lane(sends ? message_key(me, other) : message_key(other, me), 2);
    return at->second;
}

Ticket Engine::State::submit(const Move& move, std::span<const Ticket> after, MoveTimes* times) {
    validate(move);
    if (spare.empty()) spare.push_back(&works.emplace_back());
    Work* work = spare.back();
    spare.pop_back();
    Lane& lane = lane_of(move);
    int tag = 0;
    if (lane.group < 0) {
        tag = tag_of(move.message);
    } else {
        tag = lane.next_tag;
        lane.next_tag = (lane.next_tag + 1) % collective_tags;
    }
    const double issued = now();
    work->assign(move, after, times, lane, tag, issued);
    (lane.first == nullptr ? lane.first : lane.last->next) = work;
    lane.last = work;
    if (lane.first == work) waiting.push_back(&lane);
    ++in_flight;
    const Ticket ticket(work, work->generation());
    begin_waiting(issued);
    return ticket;
}

// The group that gives the move a place; else none.
Engine::State::Group* Engine::State::group_of(const Work& work) {
    if (!needs_place(work.move().kind)) return nullptr;
    Group& group = groups[static_cast<std::size_t>(work.lane().group)];
    return group.ranks.size() > 1 ? &group : nullptr;
}

bool Engine::State::can_begin(const Work& work) {
    const Group* group = group_of(work);
    if (group != nullptr && !group->places[static_cast<std::size_t>(group->next_place)].free()) return false;
    return std::all_of(work.after().begin(), work.after().end(), over);
}

// Begins all moves that may, the first of them at `at`. One that ends at once (nothing to exchange) may let others begin, hence the outer loop.
bool Engine::State::begin_waiting(double at) {
    bool any = false, again = true;
    while (again) {
        again = false;
        for (std::size_t k = 0; k < waiting.size();) {
            Lane& lane = *waiting[k];
            while (lane.first != nullptr && can_begin(*lane.first)) {
                if (any) at = now();
                if (!agreed(lane, at)) break;
                Work& work = *lane.first;
                lane.first = work.next;
                lane.arrived = false;
                begin(work, at);
                again = any = true;
            }
            if (lane.first == nullptr)
                waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(k));
            else
                ++k;
        }
    }
    return any;
}

// From here on this rank is not the one that the others wait for. True unless the members have yet to agree on the lane's first move.
bool Engine::State::agreed(Lane& lane, double at) {
    if (!lane.arrived) {
        lane.arrived = true;
        ++lane.entered;
        lane.first->evidence = world.evidence().entered(lane.evidence, lane.entered, lane.first->move(), at);
        if (lane.handshake) lane.handshake->begin(lane.first->move(), lane.entered);
    }
    return !lane.handshake || lane.handshake->agreed();
}

Channel Engine::State::message_channel(const Move& move) const {
    Channel channel;
    channel.comm = messages;
    channel.members = world.size();
    channel.me = world.rank();
    channel.clock_difference = world.clock_offset(move.peer) - world.clock_offset(world.rank());
    return channel;
}

Channel Engine::State::group_channel(const Group& group) const {
    Channel channel;
    channel.comm = group.comm;
    channel.members = static_cast<int>(group.ranks.size());
    channel.me = group.me;
    return channel;
}

void Engine::State::begin(Work& work, double at) {
    const Move& move = work.move();
    const int lane = work.lane().group;
    Channel channel = lane < 0 ? message_channel(move) : group_channel(groups[static_cast<std::size_t>(lane)]);
    channel.tag = work.tag();
    channel.segment_bytes = options.segment_bytes;
    channel.max_count = options.max_count;
    channel.types = native_types ? &*native_types : nullptr;
    Algorithm algorithm = Algorithm::ring;
    int taken = -1;
    if (Group* group = group_of(work)) {
        taken = group->next_place;
        group->next_place = (taken + 1) % active_per_group;
        Place& place = group->places[static_cast<std::size_t>(taken)];
        place.taken = true;
        channel.staging = place.staging;
        channel.collectives = place.collectives;
        channel.shared = &place.shared;
        channel.levels = &group->levels;
        algorithm = algorithm_for(group->service.algorithm, move, channel.members, options.times);
    }
    work.enter(channel, algorithm, taken, at);
    if (work.finished()) return retire(work);
    active[static_cast<int>(move.priority)].push_back(&work);
}

void Engine::State::retire(Work& work) {
    if (Group* group = group_of(work)) group->places[static_cast<std::size_t>(work.place())].taken = false;
    const double at = now();
    work.retire(at);
    world.evidence().left(work.evidence, at);
    --in_flight;
    spare.push_back(&work);
}

bool Engine::State::drive_list(std::vector<Work*>& list) {
    bool moved = false, ended = false;
    for (Work* work : list) {
        moved |= work->advance();
        ended |= work->finished();
    }
    if (!ended) return moved;
    std::erase_if(list, [this](Work* work) {
        if (!work->finished()) return false;
        retire(*work);
        return true;
    });
    return true;
}

// One look at everything in flight, the urgent first. Under the lock.
bool Engine::State::drive() {
    bool moved = drive_list(active[static_cast<int>(Priority::urgent)]);
    if (!moved) moved = drive_list(active[static_cast<int>(Priority::bulk)]);
    if (!waiting.empty()) moved |= begin_waiting(now());
    if (moved) world.evidence().beat();
    return moved;
}

// The progress thread: drives while something is in flight and nobody waits for it.
void Engine::State::serve() {
    allow_short_sleeps();
    Backoff backoff(serves_on);
    std::unique_lock lock(mutex);
    for (;;) {
        wake.wait(lock, [this] { return stopping || (in_flight > 0 && waiters == 0 && !failure); });
        if (stopping) return;
        bool moved = false;
        try {
            moved = guarded([this] { return drive(); });
        } catch (...) {  // kept by guarded; whoever waits gets it
        }
        lock.unlock();
        if (moved)
            backoff.reset();
        else
            backoff.idle();
        while (callers.load(std::memory_order_relaxed) > 0) sched_yield();
        lock.lock();
    }
}

}  // namespace quadrille
