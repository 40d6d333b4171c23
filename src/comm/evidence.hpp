// What a rank is about, kept where others can read it though the rank cannot answer: its recent moves, how far it has come in each lane of
// moves, what its main thread does, and a pulse that beats whenever anything ends.
//
// A page lies in memory that the ranks of a node share (comm/evidence_pages.hpp). Its rank writes it with plain stores, some tens of
// nanoseconds a move and nothing allocated; anybody reads it, at any time. A copy taken while it changes may mix a move with the one that
// took its place; a stalled rank's page does not change. It judges nothing: comm/stall_report.hpp does.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "comm/move.hpp"

namespace quadrille {

// What the main thread is about. Moves of a lane of its own, and the blocking collectives of the World, are told of beside it.
enum class Doing : std::int64_t { other, computes, waits_for_move, waits_for_copy, reads_data, writes_record, saves };

// A lane is a sequence of moves that its members begin in one order: a group's collectives, or the messages from one rank to another. All
// members know it by the same key and number its moves alike, from 1.
std::int64_t group_key(std::span<const int> ranks);
std::int64_t message_key(int sender, int receiver);
bool is_message_key(std::int64_t key);
// {sender, receiver} of a message key.
std::array<int, 2> ends_of(std::int64_t key);

template <class T>
using Plain = T;

// Cell is std::atomic in the page itself, Plain in a copy of it.
template <template <class> class Cell>
struct EvidenceOf {
    static constexpr std::size_t most_lanes = 32, ring_size = 64;
    struct Lane {
        Cell<std::int64_t> key, members, entered;  // members: ranks; entered: number of the last move that this rank has begun
    };
    // A move that has begun here. In flight until it has left.
    struct Entry {
        Cell<std::int64_t> lane;      // its key
        Cell<std::int64_t> sequence;  // its number in the lane; 0: this place of the ring has not been used
        Cell<std::int64_t> origin, kind, bytes;
        Cell<double> entered, left;   // seconds on the rank's now(); left 0: in flight
    };
    Cell<std::int64_t> process, process_space;  // its id, and the space of ids that this one belongs to (0: unknown)
    Cell<std::int64_t> closed;                  // the rank has ended its part: that its process is gone means nothing
    Cell<std::int64_t> spoken;                  // of the node's first rank: somebody on the node has said why the job ends
    Cell<std::int64_t> pulse;
    Cell<double> still;                         // seconds without a beat while the rank's watchdog was awake
    Cell<std::int64_t> doing, about;            // Doing; the op's origin, or the step
    Cell<double> since;
    Cell<std::int64_t> votes;                   // blocking collectives of all ranks entered so far
    Cell<double> voting_since;                  // 0: in none
    Cell<std::int64_t> lane_count, next;        // next: place in the ring
    std::array<Lane, most_lanes> lanes;
    std::array<Entry, ring_size> ring;
};
using EvidencePage = EvidenceOf<std::atomic>;
using EvidenceCopy = EvidenceOf<Plain>;

EvidenceCopy copy_of(const EvidencePage& page);

// The writer of this rank's page.
class Evidence {
  public:
    // The page is zero. It must outlive this.
    explicit Evidence(EvidencePage& page);

    // Something has ended: an op, a portion of a message, a piece of a copy. From any thread.
    void beat() { page_->pulse.fetch_add(1, std::memory_order_relaxed); }
    // Of the main thread, since `now`.
    void doing(Doing what, std::int64_t about, double now);

    // The lane's place here; -1 (its moves are not told of) when there are more than most_lanes. This and the next two under one lock.
    int lane(std::int64_t key, std::int64_t members);
    // A move of `lane` begins: number and time. Returns its place in the ring, for `left`; -1 where it is not told of. A move in flight
    // keeps its place whatever comes after it.
    int entered(int lane, std::int64_t sequence, const Move& move, double now);
    void left(int place, double now);

    // A blocking collective of all ranks, as long as this lives. By one thread at a time.
    class Vote {
      public:
        explicit Vote(Evidence& evidence);
        ~Vote();
        Vote(const Vote&) = delete;
        Vote& operator=(const Vote&) = delete;

      private:
        Evidence& evidence_;
    };

    EvidencePage& page() { return *page_; }

  private:
    EvidencePage* page_;
};

// A step, or an op's origin, as one number.
std::int64_t packed(const Origin& origin);
Origin unpacked(std::int64_t origin);

}  // namespace quadrille
