// A move carried by messages between two members each: a sequence of sends and a sequence of receives, both known in advance.
//
// Item i of either is a portion of a slice. Items are ordered (round, hop, lane): a hop is one exchange with one member, lanes are
// consecutive portions of the same slice, some of them under way at once, and a round carries its lanes through all hops before the
// next begins. Both ends derive the same order, so messages of one move need no tags of their own.
//
// Round a ring, a partial sum is received into a slot, the own term is added there, and it is sent on from the slot. Two rows of
// slots, used by alternate hops, suffice against dead-lock: a send of hop t completes once the next member's row t mod 2 is
// free, that is once its sends of hop t-1 have completed, and so on down to hop 0, which is sent from the caller's buffer.
// Small moves of more than two members go directly instead: every term to the slice's owner, who adds them in the ring's order,
// and every slice from its owner to all. The same bytes and the same bits, in two steps in place of 2(n-1).
//
// message_items.cpp says what the items are, messages.cpp carries them.
#pragma once
#include <array>
#include <cstdint>

#include "comm/move_carrier.hpp"

namespace quadrille {

class Messages final : public MoveCarrier {
  public:
    static constexpr int most_lanes = 4;
    static constexpr int receive_window = 2 * most_lanes, send_window = most_lanes;  // messages in flight
    // Of segment_bytes each: one for each of them, and one for the sum of a direct move.
    static constexpr int staging_slots = receive_window + send_window + 1;

    bool advance() override;
    bool finished() const override { return finished_; }

  private:
    void begin() override;
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
    int member(int i) const { return o_->member(i); }
    int hop_of(std::int64_t i) const { return static_cast<int>(i / lanes_ % hops_); }
    int reducing_hops() const { return o_->reduces() ? o_->members - 1 : 0; }
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
    bool send_complete(std::int64_t i) const;
    bool waits_for_own_send(const Item& item, std::int64_t i) const;
    std::byte* receive_slot(int place) const { return channel_->staging.data() + place * channel_->segment_bytes; }
    std::byte* send_slot(int place) const { return receive_slot(receive_window + place); }
    std::byte* sum_slot() const { return receive_slot(receive_window + send_window); }
    std::int64_t forwarded(std::int64_t send) const { return (send - lanes_) % receive_window; }  // place of what it sends on

    bool finished_ = false;
    std::int64_t portion_ = 0;

    int hops_ = 1, lanes_ = most_lanes;
    bool direct_ = false;
    std::int64_t sends_ = 0, receives_ = 0;  // items in all
    std::int64_t posted_sends_ = 0, posted_receives_ = 0, taken_ = 0;
    std::array<std::int64_t, send_window> send_at_{};  // the item in each place
    std::array<bool, receive_window> arrived_{}, in_place_receive_{}, slot_busy_{};
    LocalCopy own_;  // slices that only this member needs to copy

    // Receives, then sends, then the header of a stage message.
    static constexpr int header_place = receive_window + send_window;
    std::array<MPI_Request, header_place + 1> requests_;
    std::array<int, header_place + 1> completed_{};
    std::array<MPI_Status, header_place + 1> statuses_{};
    Header header_;
};

}  // namespace quadrille
