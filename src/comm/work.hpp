// One move in flight: who issued it, what it waits for, where its slices lie, its times, and what carries it. A Work is used again
// for one move after another; its generation tells which. Not thread-safe: the engine calls it under its lock.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "comm/algorithm.hpp"
#include "comm/doubling.hpp"
#include "comm/engine.hpp"
#include "comm/hierarchical.hpp"
#include "comm/native.hpp"

namespace quadrille {

struct Lane;

class Work {
  public:
    // What messages, shared rounds or the native collectives' packed slices pass through.
    static std::int64_t staging_bytes(std::int64_t segment_bytes) {
        return std::max(Messages::staging_slots * segment_bytes, Doubling::staging_bytes);
    }
    // All that a place of a group has.
    static std::int64_t place_bytes(const EngineOptions& options) {
        const bool levels = options.algorithm == Algorithm::hierarchical;
        return staging_bytes(options.segment_bytes) + (levels ? Hierarchical::sum_slots * options.segment_bytes : 0);
    }

    // Takes the move; nothing happens before enter.
    void assign(const Move& move, std::span<const Ticket> after, MoveTimes* times, Lane& lane, int tag, double now);
    // Resolves the slices and lets the algorithm's carrier begin.
    void enter(const Channel& channel, Algorithm algorithm, int place, double now);
    bool advance() { return carrier_->advance(); }
    bool finished() const { return carrier_ != nullptr && carrier_->finished(); }
    // Hands out the times and makes the ticket count as done.
    void retire(double now);

    const Move& move() const { return *move_; }
    const std::vector<Ticket>& after() const { return after_; }
    Lane& lane() const { return *lane_; }
    int tag() const { return tag_; }
    int place() const { return place_; }  // of its group; -1: none
    std::uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

    Work* next = nullptr;  // in its lane's queue
    int evidence = -1;     // its place among the rank's recent moves

  private:
    MoveCarrier& carrier(Algorithm algorithm);

    const Move* move_ = nullptr;
    MoveTimes* times_ = nullptr;
    Lane* lane_ = nullptr;
    std::vector<Ticket> after_;
    int tag_ = 0, place_ = -1;
    Channel channel_;
    MoveTimes record_;
    Operands operands_;
    Messages messages_;
    Doubling doubling_;
    Shared shared_;
    Hierarchical hierarchical_;
    Native native_;
    MoveCarrier* carrier_ = nullptr;  // once entered

    std::atomic<std::uint64_t> generation_ = 1;
};

}  // namespace quadrille
