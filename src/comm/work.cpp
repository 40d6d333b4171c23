#include "comm/work.hpp"

#include <algorithm>
#include <cstring>

#include "comm/reduce.hpp"

namespace quadrille {
namespace {

// Portions summed or copied in one call of advance, and elements' bytes copied locally in one call.
constexpr int takes_per_call = 2;
constexpr std::int64_t copy_grain_bytes = 256 << 10;

// Headers of stage messages have tags of their own; all stay below the 32767 that MPI guarantees.
constexpr int header_tags = 1 << 14;

}  // namespace

void Work::assign(const Move& move, std::span<const Ticket> after, MoveTimes* times, Lane& lane, int tag) {
    move_ = &move;
    times_ = times;
    lane_ = &lane;
    tag_ = tag;
    after_.assign(after.begin(), after.end());
    record_ = {.issued = now(), .entered = 0, .finished = 0, .peer_entered = 0, .sent_bytes = 0};
    entered_ = finished_ = false;
    next = nullptr;
}

void Work::enter(const Channel& channel) {
    channel_ = channel;
    record_.entered = record_.peer_entered = now();
    entered_ = true;
    resolve_slices();
    count_items();
    posted_sends_ = posted_receives_ = taken_ = 0;
    send_at_.fill(-1);
    arrived_.fill(false);
    in_place_receive_.fill(false);
    slot_busy_.fill(false);
    requests_.fill(MPI_REQUEST_NULL);
    in_place_ = move_->kind == MoveKind::all_reduce &&
                std::any_of(move_->segments.begin(), move_->segments.end(), [](const Segment& s) { return s.in == s.out; });

    own_done_ = 0;
    own_slice_ = own_end_ = 0;
    const bool stage_message = move_->kind == MoveKind::send || move_->kind == MoveKind::receive;
    if (stage_message) {
        enter_stage_message();
    } else if (channel_.members == 1) {
        own_end_ = out_.size();
    } else if (move_->kind == MoveKind::all_gather || move_->kind == MoveKind::all_to_all) {
        own_slice_ = channel_.me;
        own_end_ = own_slice_ + 1;
    }
}

void Work::enter_stage_message() {
    const int tag = tag_ + header_tags;
    MPI_Request* request = &requests_[header_place];
    if (move_->kind == MoveKind::receive) {
        mpi_check(MPI_Irecv(&header_, sizeof header_, MPI_BYTE, move_->peer, tag, channel_.comm, request));
        return;
    }
    header_ = {.entered = record_.entered, .bytes = 0, .tag = move_->message, .unused = 0};
    for (const Segment& segment : move_->segments) header_.bytes += segment.count * element_bytes_;
    mpi_check(MPI_Isend(&header_, sizeof header_, MPI_BYTE, move_->peer, tag, channel_.comm, request));
}

bool Work::advance() {
    bool moved = test();
    moved |= take_arrivals();
    moved |= post_receives();
    moved |= post_sends();
    moved |= copy_own();
    finished_ = posted_sends_ == sends_ && taken_ == receives_ && own_slice_ == own_end_ &&
                std::all_of(requests_.begin(), requests_.end(), [](MPI_Request r) { return r == MPI_REQUEST_NULL; });
    return moved;
}

void Work::retire() {
    record_.finished = now();
    if (times_ != nullptr) *times_ = record_;
    generation_.fetch_add(1, std::memory_order_release);
}

bool Work::test() {
    int count = 0;
    const int rc =
        MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, completed_.data(), statuses_.data());
    if (rc == MPI_ERR_IN_STATUS)
        for (int k = 0; k < count; ++k) mpi_check(statuses_[static_cast<std::size_t>(k)].MPI_ERROR);
    mpi_check(rc);
    if (count == MPI_UNDEFINED || count == 0) return false;
    for (int k = 0; k < count; ++k) {
        const int place = completed_[static_cast<std::size_t>(k)];
        if (place < receive_window)
            arrived_[static_cast<std::size_t>(place)] = true;
        else if (place < header_place)
            complete_send(place - receive_window);
        else if (move_->kind == MoveKind::receive)
            check_header();
    }
    return true;
}

void Work::complete_send(int place) {
    const std::int64_t i = send_at_[static_cast<std::size_t>(place)];
    if (send_item(i).forwards) slot_busy_[static_cast<std::size_t>(forwarded(i))] = false;
}

void Work::check_header() {
    const MessageTag &theirs = header_.tag, &mine = move_->message;
    std::int64_t bytes = 0;
    for (const Segment& segment : move_->segments) bytes += segment.count * element_bytes_;
    const bool same = theirs.kind == mine.kind && theirs.chunk == mine.chunk && theirs.microbatch == mine.microbatch;
    if (!same || header_.bytes != bytes)
        throw Error(Exit::rank_failed,
                    fmt::format("comm: rank {} sent kind {} chunk {} microbatch {} of {} bytes where kind {} chunk {} "
                                "microbatch {} of {} bytes is due",
                                move_->peer, theirs.kind, theirs.chunk, theirs.microbatch, header_.bytes, mine.kind, mine.chunk,
                                mine.microbatch, bytes));
    record_.peer_entered = header_.entered + channel_.clock_difference;
}

bool Work::post_receives() {
    const std::int64_t before = posted_receives_;
    while (posted_receives_ < receives_ && posted_receives_ - taken_ < receive_window) {
        const Item item = receive_item(posted_receives_);
        if (item.portion.count > 0 && !post_receive(item, posted_receives_)) break;
        ++posted_receives_;
    }
    return posted_receives_ != before;
}

bool Work::post_receive(const Item& item, std::int64_t i) {
    if (waits_for_own_send(item, i)) return false;
    const auto place = static_cast<std::size_t>(i % receive_window);
    std::byte* target = item.arrival == Arrival::store ? out_.direct(item.portion) : nullptr;
    in_place_receive_[place] = target != nullptr;
    if (target == nullptr) {
        if (slot_busy_[place]) return false;
        target = receive_slot(static_cast<int>(place));
    }
    const auto bytes = static_cast<int>(item.portion.count * element_bytes_);
    mpi_check(MPI_Irecv(target, bytes, MPI_BYTE, item.peer, tag_, channel_.comm, &requests_[place]));
    return true;
}

// An all-reduce in place sends terms from where the sums arrive: slice me-1 at hop 0 and at the first gathering hop; directly,
// slice me-1-h at hop h and at gathering hop h.
bool Work::waits_for_own_send(const Item& item, std::int64_t i) const {
    if (!in_place_ || !item.gathers || (!direct_ && hop_of(i) != reducing_hops())) return false;
    return !send_complete(i - std::int64_t{reducing_hops()} * lanes_);
}

bool Work::send_complete(std::int64_t i) const {
    const auto place = static_cast<std::size_t>(i % send_window);
    return i < posted_sends_ && (send_at_[place] != i || requests_[receive_window + place] == MPI_REQUEST_NULL);
}

bool Work::post_sends() {
    const std::int64_t before = posted_sends_;
    while (posted_sends_ < sends_) {
        const std::int64_t i = posted_sends_;
        const Item item = send_item(i);
        if (item.portion.count > 0) {
            if (taken_ <= item.needs) break;
            if (requests_[static_cast<std::size_t>(receive_window + i % send_window)] != MPI_REQUEST_NULL) break;
            post_send(item, i);
        }
        ++posted_sends_;
    }
    return posted_sends_ != before;
}

void Work::post_send(const Item& item, std::int64_t i) {
    const auto place = static_cast<int>(i % send_window);
    const SliceTable& table = item.from_out ? out_ : in_;
    std::byte* source = item.forwards ? receive_slot(static_cast<int>(forwarded(i))) : table.direct(item.portion);
    if (source == nullptr) {
        source = send_slot(place);
        table.pack(item.portion, source);
    }
    const std::int64_t bytes = item.portion.count * element_bytes_;
    // A slice sent on round the ring counts at its owner, for every member that it will reach.
    if (!item.gathers || direct_)
        record_.sent_bytes += bytes;
    else if (item.portion.slice == channel_.me)
        record_.sent_bytes += bytes * (channel_.members - 1);
    send_at_[static_cast<std::size_t>(place)] = i;
    mpi_check(MPI_Isend(source, static_cast<int>(bytes), MPI_BYTE, item.peer, tag_, channel_.comm,
                        &requests_[static_cast<std::size_t>(receive_window + place)]));
}

bool Work::take_arrivals() {
    const std::int64_t before = taken_;
    int budget = takes_per_call;
    while (taken_ < posted_receives_ && budget > 0) {
        const Item item = receive_item(taken_);
        if (item.portion.count > 0) {
            const auto place = static_cast<std::size_t>(taken_ % receive_window);
            if (!arrived_[place]) break;
            arrived_[place] = false;
            if (!in_place_receive_[place]) {
                take(item, static_cast<int>(place));
                --budget;
            }
        }
        ++taken_;
    }
    return taken_ != before;
}

void Work::take(const Item& item, int place) {
    std::byte* slot = receive_slot(place);
    const Portion& p = item.portion;
    switch (item.arrival) {
        case Arrival::store: return out_.unpack(p, slot);
        case Arrival::sum_forward:
            combine_into(move_->op, move_->dtype, in_, p, slot);
            slot_busy_[static_cast<std::size_t>(place)] = true;
            return;
        case Arrival::sum_finish: return combine_out(move_->op, move_->dtype, in_, p, slot, out_, p);
        case Arrival::first_term: std::memcpy(sum_slot(), slot, static_cast<std::size_t>(p.count * element_bytes_)); return;
        case Arrival::next_term: return combine(move_->op, move_->dtype, sum_slot(), slot, sum_slot(), p.count);
        case Arrival::last_term:
            combine(move_->op, move_->dtype, sum_slot(), slot, sum_slot(), p.count);
            return combine_out(move_->op, move_->dtype, in_, p, sum_slot(), out_, p);
    }
}

bool Work::copy_own() {
    if (own_slice_ == own_end_) return false;
    const std::int64_t grain = std::max<std::int64_t>(1, copy_grain_bytes / element_bytes_);
    const std::int64_t count = std::min(grain, in_.length(own_slice_) - own_done_);
    if (count > 0) {
        const Portion portion{own_slice_, own_done_, count};
        copy(in_, portion, out_, portion, element_bytes_);
        own_done_ += count;
    }
    if (own_done_ == in_.length(own_slice_)) {
        ++own_slice_;
        own_done_ = 0;
    }
    return true;
}

}  // namespace quadrille
