// A collective carried by memory that the members share.
//
// In rounds: round k has portion k of every slice. A member puts its terms of the others' portions in its part of the window; the owner
// of a slice sums, in the ring's order, what all members have put (so the bits are the ring's), and puts the sum for the others to
// take. Several rounds are under way at once, as many as the place has slots; a slot is used again once all have taken from it. With
// little to sum nobody waits for sums: each member puts all its terms and sums the whole, every slice in the order of its owner.
//
// A move ends here when this member has taken all; others may still take what it has put, so the place's memory is free for the next use when
// SharedPlace::drained says so.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "comm/move_carrier.hpp"
#include "comm/shared_window.hpp"

namespace quadrille {

class Shared final : public MoveCarrier {
  public:
    bool advance() override;
    bool finished() const override { return finished_; }

  private:
    void begin() override;
    struct Progress {  // of a flow, on this member; in rounds of this move
        std::int64_t rounds = 0, put = 0, took = 0;
        bool over() const { return put == rounds && took == rounds; }
    };

    SharedPlace& place() const { return *channel_->shared; }
    Progress& progress(Flow flow) { return progress_[static_cast<std::size_t>(flow)]; }
    void cut_slots();
    bool put_terms();
    bool take_terms();
    void sum_round(std::int64_t round);
    const std::byte* others_sum(const Portion& p, std::int64_t round) const;
    void add_own(const Portion& p, const std::byte* others, std::int64_t round);
    void sum_all(const Portion& p, std::int64_t round) const;
    void sum_terms(int terms, const Portion& p, std::int64_t round, std::byte* to) const;
    bool put_slices();
    bool take_slices();

    const SharedCounters& counters(int member) const { return *place().parts[static_cast<std::size_t>(member)].counters; }
    std::int64_t in_this_move(const SharedCounters::Counter& counter, Flow flow) const;
    std::int64_t put_by_all(Flow flow) const;    // rounds that every other member has put
    std::int64_t taken_by_all(Flow flow) const;  // and taken
    void tell_put(Flow flow);
    void tell_took(Flow flow);
    Portion portion(int slice, std::int64_t round) const;
    std::byte* slot(int member, std::int64_t round, int slice) const;

    bool finished_ = false;
    bool exchanges_ = false;  // an all-reduce in which everybody sums everything
    Write write_ = Write::cached;
    std::int64_t slots_ = 0, slot_bytes_ = 0, stride_ = 0;  // bytes of a slot and of each portion in it
    std::int64_t portion_ = 0;                              // elements
    std::array<Progress, flows> progress_;
    std::array<std::uint64_t, flows> base_{};  // counters when the move began
    std::vector<std::int64_t> taken_;          // rounds of slices, of each member
    int turn_ = 0;                             // which of the others is looked at first
    LocalCopy own_;
};

}  // namespace quadrille
