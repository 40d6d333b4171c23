#include "comm/shared.hpp"

#include <algorithm>

#include "comm/reduce.hpp"
#include "comm/world.hpp"

namespace quadrille {
namespace {

constexpr std::int64_t line = 64;                    // bytes that members write apart
constexpr std::int64_t exchanged_bytes = 128 << 10;  // of the whole buffer, up to which a wait costs more than a sum,
constexpr std::int64_t summed_bytes = 16 << 10;      // and of what everybody sums beyond what two members would
constexpr std::int64_t streamed_bytes = 32 << 20;    // and from which on it is in no cache anyway

}  // namespace

void Shared::begin() {
    finished_ = false;
    const bool gathers = move().kind == MoveKind::all_gather;
    const std::int64_t bytes = o_->bytes_of_slices(gathers ? o_->out : o_->in);
    exchanges_ = move().kind == MoveKind::all_reduce && move().op == ReduceOp::sum && bytes <= exchanged_bytes &&
                 bytes * (o_->members - 2) <= summed_bytes;
    if (exchanges_) record_->sent_bytes = o_->formula_bytes();  // what each reads of the others says little of it
    write_ = bytes >= streamed_bytes ? Write::streamed : Write::cached;
    cut_slots();
    const std::int64_t rounds = ceil_div((gathers ? o_->out : o_->in).longest(), portion_);
    progress_ = {};
    progress(Flow::terms).rounds = gathers ? 0 : rounds;
    progress(Flow::slices).rounds = gathers || (move().kind == MoveKind::all_reduce && !exchanges_) ? rounds : 0;
    base_ = place().rounds;
    for (std::size_t f = 0; f < flows; ++f) place().rounds[f] += static_cast<std::uint64_t>(progress_[f].rounds);
    taken_.assign(static_cast<std::size_t>(o_->members), 0);
    turn_ = 0;
    own_.begin(*o_, o_->me, gathers ? o_->me + 1 : o_->me);
}

// A slot holds a portion of every slice: the others' terms, or with the own one the sum; in a gather the own slice's alone.
void Shared::cut_slots() {
    const std::int64_t pieces = move().kind == MoveKind::all_gather ? 1 : o_->members;
    slot_bytes_ = std::max(channel_->segment_bytes, pieces * line);
    slots_ = place().bytes / slot_bytes_;
    require(slots_ > 0, "shared memory: a place is too small for so many members");
    stride_ = slot_bytes_ / pieces / line * line;
    portion_ = stride_ / o_->element_bytes;
    if (channel_->max_count > 0) portion_ = std::min(portion_, channel_->max_count);
}

bool Shared::advance() {
    bool moved = own_.advance();
    moved |= put_terms();
    moved |= take_terms();
    moved |= put_slices();
    moved |= take_slices();
    finished_ = own_.finished() && std::all_of(progress_.begin(), progress_.end(), [](const Progress& p) { return p.over(); });
    return moved;
}

bool Shared::put_terms() {
    Progress& p = progress(Flow::terms);
    if (p.put == p.rounds || p.put - std::min(p.took, taken_by_all(Flow::terms)) >= slots_) return false;  // where it sums all, its own too
    for (int i = 0; i < o_->members; ++i) {
        if (i == o_->me && !exchanges_) continue;
        const Portion term = portion(i, p.put);
        if (term.count > 0) o_->in.pack(term, slot(o_->me, p.put, i));
        if (!exchanges_) record_->sent_bytes += term.count * o_->element_bytes;
    }
    ++p.put;
    tell_put(Flow::terms);
    return true;
}

// Not before this member's own terms of the round are put: in place, the sums overwrite them.
bool Shared::take_terms() {
    Progress& p = progress(Flow::terms);
    if (p.took == p.put || put_by_all(Flow::terms) <= p.took) return false;
    Progress& sums = progress(Flow::slices);
    if (sums.rounds > 0 && sums.put - taken_by_all(Flow::slices) >= slots_) return false;
    sum_round(p.took);
    ++p.took;
    tell_took(Flow::terms);
    if (sums.rounds > 0) {
        record_->sent_bytes += portion(o_->me, sums.put).count * o_->element_bytes * (o_->members - 1);
        ++sums.put;
        tell_put(Flow::slices);
    }
    return true;
}

void Shared::sum_round(std::int64_t round) {
    const int first = exchanges_ ? 0 : o_->me, end = exchanges_ ? o_->members : o_->me + 1;
    for (int i = first; i < end; ++i) {
        const Portion p = portion(i, round);
        if (p.count == 0) continue;
        if (exchanges_ && o_->members > 2) sum_all(p, round);
        else add_own(p, others_sum(p, round), round);
    }
}

// As the slice's owner would, of what all members have put, this one too; beside the slots, since the others read this member's.
void Shared::sum_all(const Portion& p, std::int64_t round) const {
    alignas(64) std::byte sum[summed_bytes];
    sum_terms(o_->members, p, round, sum);
    o_->out.unpack(p, sum);
}

// The first so many terms of the slice in the ring's order: from the member after its owner on, who has the last.
void Shared::sum_terms(int terms, const Portion& p, std::int64_t round, std::byte* to) const {
    const auto term = [&](int after) { return slot(o_->member(p.slice + after), round, p.slice); };
    combine(move().op, move().dtype, term(1), term(2), to, p.count);
    for (int k = 3; k <= terms; ++k) combine(move().op, move().dtype, to, term(k), to, p.count);
}

// What the others have put for this slice, from the next member on: one's own slot, or in a place of this member's that only it uses in
// this round.
const std::byte* Shared::others_sum(const Portion& p, std::int64_t round) const {
    if (o_->members == 2) return slot(o_->member(o_->me + 1), round, p.slice);
    std::byte* partial = slot(o_->me, round, p.slice);
    sum_terms(o_->members - 1, p, round, partial);
    return partial;
}

// The own term last, as in the ring; and the sum to where the others take it, if they do.
void Shared::add_own(const Portion& p, const std::byte* others, std::int64_t round) {
    const ReduceOp op = move().op;
    std::byte* shown = slot(o_->me, round, p.slice);
    if (progress(Flow::slices).rounds == 0) return combine_out(op, move().dtype, o_->in, p, others, o_->out, p, write_);
    if (others != shown) {
        o_->in.each_run(p, [&](const std::byte* own, std::int64_t at, std::int64_t count) {
            const std::int64_t skip = at * o_->element_bytes;
            combine(op, move().dtype, own, others + skip, shown + skip, count);
        });
    } else if (op == ReduceOp::sum) {  // either operand may come first
        combine_into(op, move().dtype, o_->in, p, shown);
    } else {
        combine_out(op, move().dtype, o_->in, p, others, o_->out, p);
        return o_->out.pack(p, shown);
    }
    o_->out.unpack(p, shown, write_);
}

// An all-reduce's sums are put where they are made.
bool Shared::put_slices() {
    Progress& p = progress(Flow::slices);
    if (move().kind != MoveKind::all_gather || p.put == p.rounds || p.put - taken_by_all(Flow::slices) >= slots_) return false;
    const Portion mine = portion(o_->me, p.put);
    if (mine.count > 0) o_->in.pack(mine, slot(o_->me, p.put, 0));
    record_->sent_bytes += mine.count * o_->element_bytes * (o_->members - 1);
    ++p.put;
    tell_put(Flow::slices);
    return true;
}

// A segment's bytes in one call, from the members in turn.
bool Shared::take_slices() {
    Progress& p = progress(Flow::slices);
    if (p.took == p.rounds) return false;
    const int others = o_->members - 1, first = turn_;
    std::int64_t bytes = 0;
    for (int k = 0; k < others && bytes < channel_->segment_bytes; ++k) {
        const int after = (first + k) % others, i = o_->member(o_->me + 1 + after);
        std::int64_t& taken = taken_[static_cast<std::size_t>(i)];
        if (taken >= in_this_move(counters(i).put[static_cast<std::size_t>(Flow::slices)], Flow::slices)) continue;
        const Portion theirs = portion(i, taken);
        if (theirs.count > 0) o_->out.unpack(theirs, slot(i, taken, move().kind == MoveKind::all_gather ? 0 : i), write_);
        bytes += std::max<std::int64_t>(1, theirs.count * o_->element_bytes);
        ++taken;
        turn_ = (after + 1) % others;
    }
    std::int64_t least = p.rounds;
    for (int i = 0; i < o_->members; ++i)
        if (i != o_->me) least = std::min(least, taken_[static_cast<std::size_t>(i)]);
    if (least > p.took) {
        p.took = least;
        tell_took(Flow::slices);
    }
    return bytes > 0;
}

// A member that has not begun stands where this move's rounds begin; one that has gone on to the next move has done all of these.
std::int64_t Shared::in_this_move(const SharedCounters::Counter& counter, Flow flow) const {
    const auto f = static_cast<std::size_t>(flow);
    const std::uint64_t done = counter.value.load(std::memory_order_acquire) - base_[f];
    return std::min(static_cast<std::int64_t>(done), progress_[f].rounds);
}

std::int64_t Shared::put_by_all(Flow flow) const {
    std::int64_t least = progress_[static_cast<std::size_t>(flow)].rounds;
    for (int i = 0; i < o_->members; ++i)
        if (i != o_->me) least = std::min(least, in_this_move(counters(i).put[static_cast<std::size_t>(flow)], flow));
    return least;
}

std::int64_t Shared::taken_by_all(Flow flow) const {
    std::int64_t least = progress_[static_cast<std::size_t>(flow)].rounds;
    for (int i = 0; i < o_->members; ++i)
        if (i != o_->me) least = std::min(least, in_this_move(counters(i).took[static_cast<std::size_t>(flow)], flow));
    return least;
}

void Shared::tell_put(Flow flow) {
    const auto f = static_cast<std::size_t>(flow);
    place().parts[static_cast<std::size_t>(o_->me)].counters->put[f].value.store(
        base_[f] + static_cast<std::uint64_t>(progress_[f].put), std::memory_order_release);
}

void Shared::tell_took(Flow flow) {
    const auto f = static_cast<std::size_t>(flow);
    place().parts[static_cast<std::size_t>(o_->me)].counters->took[f].value.store(
        base_[f] + static_cast<std::uint64_t>(progress_[f].took), std::memory_order_release);
}

Portion Shared::portion(int slice, std::int64_t round) const {
    const SliceTable& whole = move().kind == MoveKind::all_gather ? o_->out : o_->in;
    const std::int64_t first = round * portion_;
    return {slice, first, std::clamp<std::int64_t>(whole.length(slice) - first, 0, portion_)};
}

std::byte* Shared::slot(int member, std::int64_t round, int slice) const {
    return place().parts[static_cast<std::size_t>(member)].data + round % slots_ * slot_bytes_ + slice * stride_;
}

}  // namespace quadrille
