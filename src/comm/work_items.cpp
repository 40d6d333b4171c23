// The part of Work that says what is to be sent and received: slices as addresses, and item i of either sequence.
#include <algorithm>

#include "comm/work.hpp"

namespace quadrille {
namespace {

// MPI counts bytes in an int here.
constexpr std::int64_t largest_message = std::int64_t{1} << 30;

// Slices up to this size go directly: below it a hop costs more than its bytes.
constexpr std::int64_t small_slice_bytes = 16 << 10;

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

bool Work::uses_staging(MoveKind kind) {
    return kind != MoveKind::ring_shift && kind != MoveKind::send && kind != MoveKind::receive;
}

void Work::resolve_slices() {
    element_bytes_ = bytes_of(move_->dtype);
    in_.clear(element_bytes_);
    out_.clear(element_bytes_);
    const Move& m = *move_;
    switch (m.kind) {
        case MoveKind::all_reduce:
            require(m.in_slices.empty() && m.out_slices.empty(), "an all_reduce is always cut equally");
            resolve_side(in_, true, true, {});
            resolve_side(out_, false, true, {});
            break;
        case MoveKind::reduce_scatter:
            resolve_side(in_, true, true, m.in_slices);
            resolve_side(out_, false, false, m.in_slices);
            break;
        case MoveKind::all_gather:
            resolve_side(in_, true, false, m.out_slices);
            resolve_side(out_, false, true, m.out_slices);
            break;
        case MoveKind::all_to_all:
            resolve_side(in_, true, true, m.in_slices);
            resolve_side(out_, false, true, m.out_slices);
            require(in_.length(channel_.me) == out_.length(channel_.me),
                    "all_to_all: what a member keeps for itself has two lengths");
            break;
        case MoveKind::ring_shift:
            resolve_segments(in_, true);
            resolve_segments(out_, false);
            break;
        case MoveKind::send: resolve_segments(in_, true); break;
        case MoveKind::receive: resolve_segments(out_, false); break;
    }
}

// One slice per member: all of them of a whole buffer, else only this rank's, which then stands alone and contiguous.
void Work::resolve_side(SliceTable& table, bool input, bool whole, const std::vector<Slice>& given) const {
    const int n = channel_.members;
    const std::size_t segments = move_->segments.size();
    require(given.empty() || given.size() == segments * static_cast<std::size_t>(n),
            "a move needs one slice per segment and member");
    for (int i = 0; i < n; ++i) {
        table.begin_slice();
        if (!whole && i != channel_.me) continue;
        for (std::size_t k = 0; k < segments; ++k) {
            const Segment& segment = move_->segments[k];
            const auto* base = static_cast<const std::byte*>(input ? segment.in : segment.out);
            if (given.empty()) {
                const Extent e = equal_cut(segment.count, n, i);
                table.add(base + (whole ? e.offset * element_bytes_ : 0), e.count);
                continue;
            }
            std::int64_t at = 0;
            for (const Extent& e : given[k * static_cast<std::size_t>(n) + static_cast<std::size_t>(i)]) {
                table.add(base + (whole ? e.offset : at) * element_bytes_, e.count);
                at += e.count;
            }
        }
    }
}

void Work::resolve_segments(SliceTable& table, bool input) const {
    for (const Segment& segment : move_->segments) {
        table.begin_slice();
        table.add(input ? segment.in : segment.out, segment.count);
    }
}

int Work::count_hops() const {
    const int others = channel_.members - 1, segments = static_cast<int>(move_->segments.size());
    switch (move_->kind) {
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

std::int64_t Work::items_of(std::int64_t longest) const { return ceil_div(ceil_div(longest, portion_), lanes_) * hops_ * lanes_; }

void Work::count_items() {
    const std::int64_t most = uses_staging(move_->kind) ? channel_.segment_bytes : largest_message;
    portion_ = std::max<std::int64_t>(1, most / element_bytes_);
    if (channel_.max_count > 0) portion_ = std::min(portion_, channel_.max_count);
    hops_ = count_hops();
    sends_ = receives_ = 0;
    if (hops_ == 0) {
        hops_ = 1;
        return;
    }
    // In a gather this rank's side of the input is its own slice only, but it sends the others' on: the whole buffer counts.
    const std::int64_t out = (move_->kind == MoveKind::all_gather ? out_ : in_).longest();
    const std::int64_t in = (move_->kind == MoveKind::reduce_scatter ? in_ : out_).longest();
    const std::int64_t longest = std::max(out, in);
    const bool small = uses_staging(move_->kind) && longest <= std::min(portion_, small_slice_bytes / element_bytes_);
    lanes_ = small ? 1 : most_lanes;
    direct_ = small && channel_.members > 2 && move_->kind != MoveKind::all_to_all;
    if (move_->kind != MoveKind::receive) sends_ = items_of(out);
    if (move_->kind != MoveKind::send) receives_ = items_of(in);
}

void Work::cut_portion(Item& item, const SliceTable& table, std::int64_t i) const {
    const std::int64_t k = i / (lanes_ * hops_) * lanes_ + i % lanes_, first = k * portion_;
    item.portion.first = first;
    item.portion.count = std::clamp<std::int64_t>(table.length(item.portion.slice) - first, 0, portion_);
}

// The ring (Patarasuk and Yuan 2009). Reducing, hop h of n-1: the partial sum of slice me-1-h goes to the next member, that of
// slice me-2-h comes from the previous one, and at the last hop it is mine and gets my term. Gathering, hop h: slice me-h
// goes out, slice me-1-h comes in.
Work::Item Work::ring_send(std::int64_t i) const {
    Item item;
    const int hop = hop_of(i), me = channel_.me, reducing = reducing_hops();
    item.peer = member(me + 1);
    if (hop > 0) item.needs = i - lanes_;
    item.gathers = hop >= reducing;
    item.forwards = hop > 0 && !item.gathers;
    item.portion.slice = item.gathers ? member(me - (hop - reducing)) : member(me - 1 - hop);
    item.from_out = item.gathers && hop > 0;
    return item;
}

Work::Item Work::ring_receive(std::int64_t i) const {
    Item item;
    const int hop = hop_of(i), me = channel_.me, reducing = reducing_hops();
    item.peer = member(me - 1);
    item.gathers = hop >= reducing;
    item.portion.slice = item.gathers ? member(me - 1 - (hop - reducing)) : member(me - 2 - hop);
    if (!item.gathers) item.arrival = hop == reducing - 1 ? Arrival::sum_finish : Arrival::sum_forward;
    return item;
}

// Directly. Reducing, hop h: my term of slice me-1-h goes to its owner, and the term of member me+1+h for my slice comes, which
// is the ring's order. Gathering, hop h: my slice goes to member me+1+h, that of member me-1-h comes.
Work::Item Work::direct_send(std::int64_t i) const {
    Item item;
    const int hop = hop_of(i), me = channel_.me, reducing = reducing_hops();
    item.gathers = hop >= reducing;
    item.peer = item.gathers ? member(me + 1 + hop - reducing) : member(me - 1 - hop);
    item.portion.slice = item.gathers ? me : item.peer;
    item.from_out = item.gathers && reducing > 0;
    if (item.gathers) item.needs = reducing - 1;
    return item;
}

Work::Item Work::direct_receive(std::int64_t i) const {
    Item item;
    const int hop = hop_of(i), me = channel_.me, reducing = reducing_hops();
    item.gathers = hop >= reducing;
    item.peer = item.gathers ? member(me - 1 - (hop - reducing)) : member(me + 1 + hop);
    item.portion.slice = item.gathers ? item.peer : me;
    if (!item.gathers)
        item.arrival = hop == 0 ? Arrival::first_term : hop == reducing - 1 ? Arrival::last_term : Arrival::next_term;
    return item;
}

Work::Item Work::send_item(std::int64_t i) const {
    Item item;
    switch (move_->kind) {
        case MoveKind::all_reduce:
        case MoveKind::reduce_scatter:
        case MoveKind::all_gather: item = direct_ ? direct_send(i) : ring_send(i); break;
        case MoveKind::all_to_all:
            item.peer = member(channel_.me + 1 + hop_of(i));
            item.portion.slice = item.peer;
            break;
        case MoveKind::ring_shift:
        case MoveKind::send:
        case MoveKind::receive:
            item.peer = move_->kind == MoveKind::ring_shift ? member(channel_.me + 1) : move_->peer;
            item.portion.slice = hop_of(i);
            break;
    }
    cut_portion(item, move_->kind == MoveKind::all_gather ? out_ : in_, i);
    return item;
}

Work::Item Work::receive_item(std::int64_t i) const {
    Item item;
    switch (move_->kind) {
        case MoveKind::all_reduce:
        case MoveKind::reduce_scatter:
        case MoveKind::all_gather: item = direct_ ? direct_receive(i) : ring_receive(i); break;
        case MoveKind::all_to_all:
            item.peer = member(channel_.me - 1 - hop_of(i));
            item.portion.slice = item.peer;
            break;
        case MoveKind::ring_shift:
        case MoveKind::send:
        case MoveKind::receive:
            item.peer = move_->kind == MoveKind::ring_shift ? member(channel_.me - 1) : move_->peer;
            item.portion.slice = hop_of(i);
            break;
    }
    cut_portion(item, move_->kind == MoveKind::reduce_scatter ? in_ : out_, i);
    return item;
}

}  // namespace quadrille
