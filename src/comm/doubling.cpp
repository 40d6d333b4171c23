#include "comm/doubling.hpp"

#include <bit>
#include <cstring>
#include <utility>

#include "comm/reduce.hpp"
#include "comm/world.hpp"

namespace quadrille {

void Doubling::begin() {
    const int members = o_->members, me = o_->me;
    power_ = static_cast<int>(std::bit_floor(static_cast<unsigned>(members)));
    hops_ = std::countr_zero(static_cast<unsigned>(power_));
    const bool folds = me < members - power_;
    steps_ = me >= power_ ? 2 : hops_ + 2 * folds;
    step_ = 0;
    count_ = 0;
    for (const Segment& s : move().segments) count_ += s.count;
    if (count_ == 0) steps_ = 0;
    record_->sent_bytes = o_->formula_bytes();
    requests_.fill(MPI_REQUEST_NULL);
    const auto half = static_cast<std::int64_t>(channel_->staging.size()) / 2 / 64 * 64;
    require(count_ * o_->element_bytes <= half, "recursive doubling: the staging holds less than the move");
    sum_ = channel_->staging.data();
    other_ = sum_ + half;
    each_segment([this](const Segment& s, std::int64_t at, std::size_t bytes) { std::memcpy(sum_ + at, s.in, bytes); });
    if (steps_ > 0) post();
}

// f(segment, where it stands among all, its bytes).
template <class F>
void Doubling::each_segment(F f) const {
    std::int64_t at = 0;
    for (const Segment& s : move().segments) {
        if (s.count > 0) f(s, at, static_cast<std::size_t>(s.count * o_->element_bytes));
        at += s.count * o_->element_bytes;
    }
}

Doubling::Step Doubling::step(int i) const {
    const int me = o_->me;
    if (me >= power_) return {me - power_, i == 0, i == 1, true};
    const bool folds = me < o_->members - power_;
    const int hop = i - folds;
    if (hop < 0) return {me + power_, false, true, false};
    if (hop == hops_) return {me + power_, true, false, false};
    return {me ^ (1 << hop), true, true, false};
}

void Doubling::post() {
    const Step s = step(step_);
    const auto bytes = static_cast<int>(count_ * o_->element_bytes);
    if (s.receives) mpi_check(MPI_Irecv(other_, bytes, MPI_BYTE, s.peer, channel_->tag, channel_->comm, &requests_[0]));
    if (s.sends) mpi_check(MPI_Isend(sum_, bytes, MPI_BYTE, s.peer, channel_->tag, channel_->comm, &requests_[1]));
}

bool Doubling::advance() {
    bool moved = false;
    while (step_ < steps_) {
        int done = 0;
        mpi_check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE));
        if (!done) return moved;
        take(step(step_));
        moved = true;
        if (++step_ < steps_) post();
    }
    return moved;
}

// The lower member's operand comes first on both sides, so both have the same bits (a zero has two).
void Doubling::take(const Step& s) {
    const Move& m = *o_->move;
    if (s.receives && s.replaces) std::swap(sum_, other_);
    else if (s.receives && o_->me < s.peer) combine(m.op, m.dtype, sum_, other_, sum_, count_);
    else if (s.receives) {
        combine(m.op, m.dtype, other_, sum_, other_, count_);
        std::swap(sum_, other_);
    }
    if (step_ + 1 < steps_) return;
    each_segment([this](const Segment& segment, std::int64_t at, std::size_t bytes) { std::memcpy(segment.out, sum_ + at, bytes); });
}

}  // namespace quadrille
