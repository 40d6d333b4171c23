// The copy and disk queues of one rank: moves between tiers of memory, behind the compute queue. Owns one thread, which sleeps while nothing
// is under way; borrows arena and engine.
//
// A queue starts its copies in order, but past one that still waits; one begins when the moves and copies that it comes after are done, and the
// device's compute queue is where it was when the copy was started. The device copies memory; the thread gives the queues their turns and keeps the
// file busy meanwhile.
#pragma once
#include "comm/engine.hpp"
#include "runtime/addresses.hpp"
#include "runtime/arena.hpp"

#include <array>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace quadrille {

struct TierMove {
    Queue queue = Queue::copy_in;
    ByteRange from, to;  // equally long
};

// A started copy, numbered in order of start.
using CopyTicket = std::int64_t;

class Copies {
  public:
    Copies(Arena& arena, Engine& engine);
    // Everything started should be done; what is not goes no further.
    ~Copies();
    Copies(const Copies&) = delete;
    Copies& operator=(const Copies&) = delete;

    // Starts `copy` after these moves and copies, and what has been put on the device's compute queue. `*times` is written before the copy counts as
    // done. Throws what an earlier copy has thrown.
    CopyTicket start(const TierMove& copy, std::vector<Ticket> moves, std::vector<CopyTicket> copies, MoveTimes* times);
    // Returns when done. Throws what any copy has thrown: Error{io_failed} of the file, with its name and the bytes.
    void wait(CopyTicket ticket);
    // Makes the compute queue wait for it, and returns once that is settled. Throws the same.
    void compute_after(CopyTicket ticket);
    // Gives up, since something else has failed: once it returns, no copy touches memory or its times again (the file's transfers end by
    // themselves, and use memory until then), and whoever waits or starts gets `why`. Of several failures the first stays.
    void fail(std::exception_ptr why);
    // How many of the copies started may still be under way; never less than are. For tests.
    std::size_t unfinished();

  private:
    struct Job {
        TierMove copy;
        std::vector<Ticket> moves;
        std::vector<CopyTicket> copies;
        MoveTimes* times = nullptr;
        MoveTimes record;
        CopyTicket number = 0;
        Mark after;                             // of the compute queue
        std::unique_ptr<DeviceCopy> on_device;  // once it has begun
        std::int64_t copied = 0;                // bytes
        TransferTicket transfer = -1;           // of the file, once it has begun
        MovedBytes moved;                       // by it
        bool begun = false;
    };
    using Lane = std::deque<Job>;

    void serve();
    bool advance(Lane& lane);
    bool may_begin(Job& job);
    void begin(Job& job);
    bool look(Job& job);
    bool all_moved(const Job& job) const;
    void finish(Job& job);
    // Under the lock:
    struct State {
        bool over = false, begun = false;
        Mark end;  // of one that has begun
    };
    bool over(CopyTicket ticket) const { return ticket < first_ || state(ticket).over; }
    const State& state(CopyTicket ticket) const { return states_[static_cast<std::size_t>(ticket - first_)]; }
    State& state(CopyTicket ticket) { return states_[static_cast<std::size_t>(ticket - first_)]; }
    void end_thread();

    Arena& arena_;
    Engine& engine_;
    std::mutex mutex_;
    std::condition_variable wake_, told_;  // told_: a copy has begun or is over
    std::deque<Job> arriving_;
    CopyTicket first_ = 0;               // all below it are over
    std::deque<State> states_;           // of ticket first_ on
    std::exception_ptr failure_;
    bool stopping_ = false;
    std::array<Lane, tier_queues.size()> lanes_;  // of the thread alone
    std::thread thread_;
};

}  // namespace quadrille
