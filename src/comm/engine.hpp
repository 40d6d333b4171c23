// The moves of one rank in flight: collectives as resumable state machines over messages, shared memory or the MPI library's own, several at once.
//
// Whoever waits drives them; while nobody waits a progress thread does, which sleeps when nothing is in flight. Urgent moves
// go before bulk ones. The moves of one group begin in issue order and must be issued in the same order by all its members;
// moves of different groups, sends and receives are independent. The order in which an element is summed depends on the
// algorithm and on the member whose slice it is in (README.md says how), never on the segmentation, the message size or the timing: same input, same
// bits, and the same on every member (of the library's own collectives only scalars promise that). It does not look at what the buffers' users do: a
// buffer belongs to the move from start to done. Every move leaves its traces in the rank's evidence (comm/evidence.hpp).
#pragma once
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>

#include "comm/measured.hpp"
#include "comm/world.hpp"

namespace quadrille {

class Work;

struct EngineOptions {
    std::int64_t max_count = 0;              // elements per message; 0: as many as MPI takes
    std::int64_t segment_bytes = 256 << 10;  // grain of pipelining inside a move
    Algorithm algorithm = Algorithm::ring;   // of collectives. A group that it does not suit (shared: on several nodes; hierarchical: not on several,
                                             // or not with several ranks on each, the same number) takes its other half: shared or ring
    MeasuredTimes times;                     // that decide where it is automatic; the same on all ranks
    std::optional<std::int64_t> shared_room = {};  // bytes that the ranks of a node may share; none: half of what is free there, since another job
                                                   // may begin at the same time. A group that finds too little takes the ring
    int pretend_nodes = 0;                   // for tests: cut the ranks in so many nodes; 0: the nodes are what they are
    int compute_threads = 1;                 // of this rank: tells whether the progress thread has a core of its own
    std::span<std::byte> staging = {};       // where the groups' staging lies, in the order in which they are made; empty: each reserves its own, as
                                             // all do that share memory
    bool check = false;                      // debug: members compare what they are about to do before each collective (comm/handshake.hpp)
    DescribeLine describe = {};              // for what the check finds
};

// Why a group was given another algorithm than was asked for.
enum class Instead {
    as_asked,
    one_node,       // its members are all on one node: shared in place of hierarchical
    several_nodes,  // they are not: ring in place of shared or automatic
    uneven_nodes,   // they are not as many on each, or one on each: ring in place of hierarchical
    no_room,        // too little memory to share is left: ring
};

// What serves a group's collectives: never automatic's choice for one move, but automatic itself. The same on all members.
struct Service {
    Algorithm algorithm = Algorithm::ring;
    Instead instead = Instead::as_asked;
    std::int64_t wanted = 0, room = 0;  // bytes of memory to share: of each member, and what the member with the least had left; 0: none is wanted
};

// Memory that groups have taken beside EngineOptions::staging, in bytes.
struct GroupMemory {
    std::int64_t own = 0;     // of this rank
    std::int64_t mapped = 0;  // of other ranks of its node: the operating system counts it for every process that maps it
};

// One started move. Cheap to copy; default-constructed: already done.
class Ticket {
  public:
    Ticket() = default;

  private:
    friend class Engine;
    Ticket(Work* work, std::uint64_t generation) : work_(work), generation_(generation) {}
    Work* work_ = nullptr;
    std::uint64_t generation_ = 0;
};

class Engine {
  public:
    // Collective over all ranks of the world, which must outlive the engine.
    explicit Engine(World& world, const EngineOptions& options = {});
    // Everything started must be done; else, and after `fail`, the world is told that it cannot end MPI in order. In order it is collective over the
    // ranks of each group, whose shared memory is given back together.
    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    // The group of these world ranks, this one among them; member i is ranks[i], its ring neighbours are i±1. The same list
    // gives the same handle. Collective over the ranks named, in an order of lists that dead-locks nobody. Takes the
    // group's staging memory, so no move allocates later.
    int group(std::span<const int> ranks);
    // Bytes of staging that a group of more than one rank takes.
    static std::int64_t staging_bytes(const EngineOptions& options);
    // Of this group; 0 for a rank alone.
    std::int64_t staging_bytes(int group) const;
    const Service& service(int group) const;
    // Of all groups made so far.
    GroupMemory memory() const;

    // Starts a move after the moves in `after` are done. `move`, its buffers and `*times` (written before it counts as done)
    // must stay as they are until done. Never blocks for a message. Error{rank_failed} as wait.
    Ticket start(const Move& move, std::span<const Ticket> after = {}, MoveTimes* times = nullptr);
    Ticket start(Move&&, std::span<const Ticket> = {}, MoveTimes* = nullptr) = delete;
    // Returns when done, driving all moves meanwhile. Error{rank_failed} if the engine has failed, from whichever thread.
    void wait(const Ticket& ticket);
    // Looks, and drives nothing: so tests see what the progress thread does alone. Error{rank_failed} as wait.
    bool done(const Ticket& ticket);
    // start and wait, without waking the progress thread for it.
    void run(const Move& move, MoveTimes* times = nullptr);
    // Gives up, since something else has failed: once it returns, no thread of the engine touches a move, its buffers or its times again
    // (the MPI library may still write to the buffers of what is in flight), and whoever waits or starts gets `why`. The world is told that
    // it cannot end MPI in order. Of several failures the first stays.
    void fail(std::exception_ptr why);
    // The rank's, for whoever does something else than moves between ranks.
    Evidence& evidence();

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace quadrille
