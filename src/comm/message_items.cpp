// The part of Messages that says what is to be sent and received: item i of either sequence.
#include <algorithm>

#include "comm/algorithm.hpp"
#include "comm/messages.hpp"

namespace quadrille {
namespace {

// MPI counts bytes in an int here.
constexpr std::int64_t largest_message = std::int64_t{1} << 30;

// Slices up to this size go directly: below it a hop costs more than its bytes.
constexpr std::int64_t small_slice_bytes = 16 << 10;

}  // namespace

int Messages::count_hops() const {
    const int others = o_->members - 1, segments = static_cast<int>(move().segments.size());
    switch (move().kind) {
        case MoveKind::all_reduce: return 2 * others;
        case MoveKind::reduce_scatter:
        case MoveKind::all_gather:
        case MoveKind::all_to_all: return others;
        case MoveKind::ring_shift: return others == 0 ? 0 : segments;
        case MoveKind::send:
        case MoveKind::receive: return segments;
    }
    return 0;
}

std::int64_t Messages::items_of(std::int64_t longest) const { return ceil_div(ceil_div(longest, portion_), lanes_) * hops_ * lanes_; }

void Messages::count_items() {
    const std::int64_t most = needs_place(move().kind) ? channel_->segment_bytes : largest_message;
    portion_ = std::max<std::int64_t>(1, most / o_->element_bytes);
    if (channel_->max_count > 0) portion_ = std::min(portion_, channel_->max_count);
    hops_ = count_hops();
    sends_ = receives_ = 0;
    if (hops_ == 0) {
        hops_ = 1;
        return;
    }
    // In a gather this rank's side of the input is its own slice only, but it sends the others' on: the whole buffer counts.
    const std::int64_t out = (move().kind == MoveKind::all_gather ? o_->out : o_->in).longest();
    const std::int64_t in = (move().kind == MoveKind::reduce_scatter ? o_->in : o_->out).longest();
    const std::int64_t longest = std::max(out, in);
    const bool small = needs_place(move().kind) && longest <= std::min(portion_, small_slice_bytes / o_->element_bytes);
    lanes_ = small ? 1 : most_lanes;
    direct_ = small && o_->members > 2 && move().kind != MoveKind::all_to_all;
    if (move().kind != MoveKind::receive) sends_ = items_of(out);
    if (move().kind != MoveKind::send) receives_ = items_of(in);
}

void Messages::cut_portion(Item& item, const SliceTable& table, std::int64_t i) const {
    const std::int64_t k = i / (lanes_ * hops_) * lanes_ + i % lanes_, first = k * portion_;
    item.portion.first = first;
    item.portion.count = std::clamp<std::int64_t>(table.length(item.portion.slice) - first, 0, portion_);
}

// The ring (Patarasuk and Yuan 2009). Reducing, hop h of n-1: the partial sum of slice me-1-h goes to the next member, that of
// slice me-2-h comes from the previous one, and at the last hop it is mine and gets my term. Gathering, hop h: slice me-h
// goes out, slice me-1-h comes in.
Messages::Item Messages::ring_send(std::int64_t i) const {
    Item item;
    const int hop = hop_of(i), me = o_->me, reducing = reducing_hops();
    item.peer = member(me + 1);
    if (hop > 0) item.needs = i - lanes_;
    item.gathers = hop >= reducing;
    item.forwards = hop > 0 && !item.gathers;
    item.portion.slice = item.gathers ? member(me - (hop - reducing)) : member(me - 1 - hop);
    item.from_out = item.gathers && hop > 0;
    return item;
}

Messages::Item Messages::ring_receive(std::int64_t i) const {
    Item item;
    const int hop = hop_of(i), me = o_->me, reducing = reducing_hops();
    item.peer = member(me - 1);
    item.gathers = hop >= reducing;
    item.portion.slice = item.gathers ? member(me - 1 - (hop - reducing)) : member(me - 2 - hop);
    if (!item.gathers) item.arrival = hop == reducing - 1 ? Arrival::sum_finish : Arrival::sum_forward;
    return item;
}

// Directly. Reducing, hop h: my term of slice me-1-h goes to its owner, and the term of member me+1+h for my slice comes, which
// is the ring's order. Gathering, hop h: my slice goes to member me+1+h, that of member me-1-h comes.
Messages::Item Messages::direct_send(std::int64_t i) const {
    Item item;
    const int hop = hop_of(i), me = o_->me, reducing = reducing_hops();
    item.gathers = hop >= reducing;
    item.peer = item.gathers ? member(me + 1 + hop - reducing) : member(me - 1 - hop);
    item.portion.slice = item.gathers ? me : item.peer;
    item.from_out = item.gathers && reducing > 0;
    if (item.gathers) item.needs = reducing - 1;
    return item;
}

Messages::Item Messages::direct_receive(std::int64_t i) const {
    Item item;
    const int hop = hop_of(i), me = o_->me, reducing = reducing_hops();
    item.gathers = hop >= reducing;
    item.peer = item.gathers ? member(me - 1 - (hop - reducing)) : member(me + 1 + hop);
    item.portion.slice = item.gathers ? item.peer : me;
    if (!item.gathers)
        item.arrival = hop == 0 ? Arrival::first_term : hop == reducing - 1 ? Arrival::last_term : Arrival::next_term;
    return item;
}

Messages::Item Messages::send_item(std::int64_t i) const {
    Item item;
    switch (move().kind) {
        case MoveKind::all_reduce:
        case MoveKind::reduce_scatter:
        case MoveKind::all_gather: item = direct_ ? direct_send(i) : ring_send(i); break;
        case MoveKind::all_to_all:
            item.peer = member(o_->me + 1 + hop_of(i));
            item.portion.slice = item.peer;
            break;
        case MoveKind::ring_shift:
        case MoveKind::send:
        case MoveKind::receive:
            item.peer = move().kind == MoveKind::ring_shift ? member(o_->me + 1) : move().peer;
            item.portion.slice = hop_of(i);
            break;
    }
    cut_portion(item, move().kind == MoveKind::all_gather ? o_->out : o_->in, i);
    return item;
}

Messages::Item Messages::receive_item(std::int64_t i) const {
    Item item;
    switch (move().kind) {
        case MoveKind::all_reduce:
        case MoveKind::reduce_scatter:
        case MoveKind::all_gather: item = direct_ ? direct_receive(i) : ring_receive(i); break;
        case MoveKind::all_to_all:
            item.peer = member(o_->me - 1 - hop_of(i));
            item.portion.slice = item.peer;
            break;
        case MoveKind::ring_shift:
        case MoveKind::send:
        case MoveKind::receive:
            item.peer = move().kind == MoveKind::ring_shift ? member(o_->me - 1) : move().peer;
            item.portion.slice = hop_of(i);
            break;
    }
    cut_portion(item, move().kind == MoveKind::reduce_scatter ? o_->in : o_->out, i);
    return item;
}

}  // namespace quadrille
