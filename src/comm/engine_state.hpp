// The engine's inside: who waits in which lane, what is in flight, and the threads that drive it.
//
// What moves need is guarded by one mutex, under which all their MPI calls are made. Groups are made beside it, by one thread, and added under it.
// The progress thread keeps off the mutex while a caller wants it, and sleeps while somebody waits (who drives then) or nothing is in flight.
#pragma once
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "comm/backoff.hpp"
#include "comm/engine.hpp"
#include "comm/evidence.hpp"
#include "comm/handshake.hpp"
#include "comm/staging.hpp"
#include "comm/work.hpp"

namespace quadrille {

// Moves that begin in the order in which they were issued: a group's, or the sends (receives) to (from) one rank.
struct Lane {
    Work* first = nullptr;
    Work* last = nullptr;
    int group = -1;  // -1: stage messages
    int next_tag = 0;
    int evidence = -1;            // its place there
    std::int64_t entered = 0;     // moves
    bool arrived = false;         // the first move has begun as far as others can see: it is only agreed upon yet
    std::optional<Handshake> handshake;
};

constexpr int active_per_group = 2;  // moves of one group that have a place at once

// What a move has to itself while it is under way. The moves of a group take its places in turn, so all members give the same place to
// the same move, whichever ends first.
struct Place {
    std::span<std::byte> staging;
    MPI_Comm collectives = MPI_COMM_NULL;  // native
    SharedPlace shared;                    // shared
    bool taken = false;

    bool free() const { return !taken && shared.drained(); }
};

struct Engine::State {
    struct Group {
        std::vector<int> ranks;
        int me = 0;
        MPI_Comm comm = MPI_COMM_NULL, handshakes = MPI_COMM_NULL;
        Service service;
        Staging own_staging;                   // unless it lies in EngineOptions::staging
        Levels levels;                         // hierarchical
        std::unique_ptr<SharedWindow> window;  // where memory is shared: staging lies there
        std::int64_t staging_bytes = 0;
        std::array<Place, active_per_group> places;  // of a group of more than one rank
        int next_place = 0;
        Lane lane;
    };

    World& world;
    const EngineOptions options;
    MPI_Comm messages = MPI_COMM_NULL;  // of sends and receives
    Backoff::Core waits_on = Backoff::Core::own, serves_on = Backoff::Core::own;

    // Of whoever makes groups.
    std::int64_t staging_taken = 0;  // of EngineOptions::staging
    std::int64_t shared_left = 0;    // bytes that this rank may still take for windows

    // Guarded by mutex.
    std::mutex mutex;
    std::condition_variable wake;
    std::deque<Group> groups;
    std::map<std::pair<int, bool>, Lane> message_lanes;  // (peer, is a send)
    std::vector<Lane*> waiting;                          // lanes with moves that have not begun
    std::deque<Work> works;
    std::vector<Work*> spare;
    std::vector<Work*> active[2];  // by Priority, in the order in which they began
    std::int64_t in_flight = 0;
    int waiters = 0;
    bool stopping = false;
    std::exception_ptr failure;

    std::atomic<bool> failed = false;
    std::atomic<int> callers = 0;  // want the lock; the progress thread keeps off it
    std::thread progress;
    std::optional<NativeTypes> native_types;

    State(World& w, const EngineOptions& o) : world(w), options(o) {}

    static bool over(const Ticket& t) { return t.work_ == nullptr || t.work_->generation() != t.generation_; }
    void check_failure();
    void fail(std::exception_ptr why);  // under the lock
    int node(int rank) const;
    void choose_algorithm(Group& group) const;
    void agree_on_room(Group& group, std::int64_t bytes);
    void open_levels(Group& group);
    std::byte* take_staging(Group& group);
    void open_places(Group& group);
    Lane& lane_of(const Move& move);
    void validate(const Move& move) const;
    Ticket submit(const Move& move, std::span<const Ticket> after, MoveTimes* times);
    bool begin_waiting(double at);
    Group* group_of(const Work& work);
    bool can_begin(const Work& work);
    bool agreed(Lane& lane, double at);
    void begin(Work& work, double at);
    Channel message_channel(const Move& move) const;
    Channel group_channel(const Group& group) const;
    bool drive();
    bool drive_list(std::vector<Work*>& list);
    void retire(Work& work);
    template <class F>
    auto guarded(F f);
    std::unique_lock<std::mutex> lock_as_caller();
    template <class Over>
    void wait_until(std::unique_lock<std::mutex> lock, Over is_over);
    void serve();
};

// Runs f; what it throws ends the engine: later calls, of any thread, throw it too. To be called under the lock.
template <class F>
auto Engine::State::guarded(F f) {
    try {
        if (failure) std::rethrow_exception(failure);
        return f();
    } catch (...) {
        fail(std::current_exception());
        throw;
    }
}

// Takes the lock from a caller who holds it, and gives it away between two looks.
template <class Over>
void Engine::State::wait_until(std::unique_lock<std::mutex> lock, Over is_over) {
    const auto ended = [&] { return is_over() || failed.load(std::memory_order_acquire); };
    ++waiters;
    Backoff backoff(waits_on);
    while (!ended()) {
        bool moved = false;
        if (lock.owns_lock() || lock.try_lock()) {
            try {
                moved = guarded([this] { return drive(); });
            } catch (...) {  // kept by guarded, rethrown below once the books are straight
            }
            if (ended()) break;
            lock.unlock();
        }
        if (moved)
            backoff.reset();
        else
            backoff.idle();
    }
    if (!lock.owns_lock()) lock = lock_as_caller();
    --waiters;
    const bool others = in_flight > 0 && waiters == 0;
    lock.unlock();
    if (others) wake.notify_one();
    check_failure();
}

}  // namespace quadrille
