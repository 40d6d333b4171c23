// One move in flight: a state machine that `advance` carries on as far as it goes without waiting.
//
// A move is a sequence of sends and a sequence of receives, both known in advance; item i of either is a portion of a slice.
// Items are ordered (round, hop, lane): a hop is one exchange with one member, lanes are consecutive portions of the same
// slice, some of them under way at once, and a round carries its lanes through all hops before the next begins. Both ends
// derive the same order, so messages of one move need no tags of their own.
//
// Round a ring, a partial sum is received into a slot, the own term is added there, and it is sent on from the slot. Two rows of
// slots, used by alternate hops, suffice against dead-lock: a send of hop t completes once the next member's row t mod 2 is
// free, that is once its sends of hop t-1 have completed, and so on down to hop 0, which is sent from the caller's buffer.
// Small moves of more than two members go directly instead: every term to the slice's owner, who adds them in the ring's order,
// and every slice from its owner to all. The same bytes and the same bits, in two steps in place of 2(n-1).
//
// work_items.cpp says what the items are, work.cpp carries them. Not thread-safe: the engine calls it under its lock.
#pragma once
#include <mpi.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "comm/engine.hpp"
#include "comm/slices.hpp"

namespace quadrille {

struct Lane;

// Where a move's messages go.
struct Channel {
    MPI_Comm comm = MPI_COMM_NULL;
    int members = 1, me = 0;       // send, receive: of the world
    std::byte* staging = nullptr;  // Work::staging_bytes, if it uses any
    std::int64_t segment_bytes = 0, max_count = 0;
    double clock_difference = 0;  // receive: to add to the sender's now() to get mine
};

class Work {
  public:
    static constexpr int most_lanes = 4;
    static constexpr int receive_window = 2 * most_lanes, send_window = most_lanes;  // messages in flight
    // A slot for each of them, and one for the sum of a direct move.
    static std::int64_t staging_bytes(std::int64_t segment_bytes) { return (receive_window + send_window + 1) * segment_bytes; }
    static bool uses_staging(MoveKind kind);

    // Takes the move; nothing happens before enter.
    void assign(const Move& move, std::span<const Ticket> after, MoveTimes* times, Lane& lane, int tag);
    // Resolves the slices and posts what can be posted.
    void enter(const Channel& channel);
    // Carries on; tells whether anything happened. Sums or copies at most a few portions a call, so that urgent moves get in.
    bool advance();
    bool finished() const { return entered_ && finished_; }
    // Hands out the times and makes the ticket count as done.
    void retire();

    const Move& move() const { return *move_; }
    const std::vector<Ticket>& after() const { return after_; }
    Lane& lane() const { return *lane_; }
    std::byte* staging() const { return channel_.staging; }
    std::uint64_t generation() const { return generation_.load(std::memory_order_acquire); }

    Work* next = nullptr;  // in its lane's queue
    int evidence = -1;     // its place among the rank's recent moves

  private:
    enum class Arrival {
        store,
        sum_forward,  // add the own term and send it on
        sum_finish,   // add the own term: done
        first_term,
        next_term,
        last_term,  // direct: collect the others' terms, then as sum_finish
    };
    struct Item {
        Portion portion;
        int peer = 0;
        bool gathers = false;     // belongs to a gathering phase: sends slices, not terms
        bool forwards = false;    // send: from the slot of the receive that it needs
        std::int64_t needs = -1;  // send: the receive that must have been taken before; its index
        bool from_out = false;    // send: from the output buffer
        Arrival arrival = Arrival::store;
    };
    struct Header {  // travels ahead of a stage message
        double entered = 0;
        std::int64_t bytes = 0;
        MessageTag tag;
        std::int32_t unused = 0;
    };

    void resolve_slices();
    void resolve_side(SliceTable& table, bool input, bool whole, const std::vector<Slice>& given) const;
    void resolve_segments(SliceTable& table, bool input) const;
    void count_items();
    std::int64_t items_of(std::int64_t longest) const;
    int count_hops() const;
    void enter_stage_message();
    Item send_item(std::int64_t i) const;
    Item receive_item(std::int64_t i) const;
    Item ring_send(std::int64_t i) const;
    Item ring_receive(std::int64_t i) const;
    Item direct_send(std::int64_t i) const;
    Item direct_receive(std::int64_t i) const;
    int member(int i) const { return ((i % channel_.members) + channel_.members) % channel_.members; }
    int hop_of(std::int64_t i) const { return static_cast<int>(i / lanes_ % hops_); }
    int reducing_hops() const { return reduces() ? channel_.members - 1 : 0; }
    void cut_portion(Item& item, const SliceTable& table, std::int64_t i) const;

    bool test();
    void complete_send(int place);
    void check_header();
    bool post_receives();
    bool post_receive(const Item& item, std::int64_t i);
    bool post_sends();
    void post_send(const Item& item, std::int64_t i);
    bool take_arrivals();
    void take(const Item& item, int place);
    bool copy_own();
    bool send_complete(std::int64_t i) const;
    bool waits_for_own_send(const Item& item, std::int64_t i) const;
    std::byte* receive_slot(int place) const { return channel_.staging + place * channel_.segment_bytes; }
    std::byte* send_slot(int place) const { return receive_slot(receive_window + place); }
    std::byte* sum_slot() const { return receive_slot(receive_window + send_window); }
    std::int64_t forwarded(std::int64_t send) const { return (send - lanes_) % receive_window; }  // place of what it sends on
    bool reduces() const { return move_->kind == MoveKind::all_reduce || move_->kind == MoveKind::reduce_scatter; }

    const Move* move_ = nullptr;
    MoveTimes* times_ = nullptr;
    Lane* lane_ = nullptr;
    std::vector<Ticket> after_;
    int tag_ = 0;
    Channel channel_;
    MoveTimes record_;
    bool entered_ = false, finished_ = false, in_place_ = false;
    std::int64_t element_bytes_ = 0, portion_ = 0;
    SliceTable in_, out_;

    int hops_ = 1, lanes_ = most_lanes;
    bool direct_ = false;
    std::int64_t sends_ = 0, receives_ = 0;  // items in all
    std::int64_t posted_sends_ = 0, posted_receives_ = 0, taken_ = 0;
    std::array<std::int64_t, send_window> send_at_{};  // the item in each place
    std::array<bool, receive_window> arrived_{}, in_place_receive_{}, slot_busy_{};
    int own_slice_ = 0, own_end_ = 0;  // slices to be copied locally
    std::int64_t own_done_ = 0;

    // Receives, then sends, then the header of a stage message.
    static constexpr int header_place = receive_window + send_window;
    std::array<MPI_Request, header_place + 1> requests_;
    std::array<int, header_place + 1> completed_{};
    std::array<MPI_Status, header_place + 1> statuses_{};
    Header header_;

    std::atomic<std::uint64_t> generation_ = 1;
};

}  // namespace quadrille
