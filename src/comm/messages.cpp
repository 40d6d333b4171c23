#include "comm/messages.hpp"

#include <algorithm>
#include <cstring>

#include "comm/reduce.hpp"
#include "comm/world.hpp"

namespace quadrille {
namespace {

constexpr int takes_per_call = 2;  // portions summed or copied in one call of advance

// Headers of stage messages have tags of their own; all stay below the 32767 that MPI guarantees.
constexpr int header_tags = 1 << 14;

}  // namespace

void Messages::begin() {
    finished_ = false;
    count_items();
    posted_sends_ = posted_receives_ = taken_ = 0;
    send_at_.fill(-1);
    arrived_.fill(false);
    in_place_receive_.fill(false);
    slot_busy_.fill(false);
    requests_.fill(MPI_REQUEST_NULL);
    const MoveKind kind = move().kind;
    const int me = o_->me;
    own_.begin(*o_, 0, 0);
    if (kind == MoveKind::send || kind == MoveKind::receive) enter_stage_message();
    else if (o_->members == 1) own_.begin(*o_, 0, o_->out.size());
    else if (kind == MoveKind::all_gather || kind == MoveKind::all_to_all) own_.begin(*o_, me, me + 1);
}

void Messages::enter_stage_message() {
    const int tag = channel_->tag + header_tags;
    MPI_Request* request = &requests_[header_place];
    if (move().kind == MoveKind::receive) {
        mpi_check(MPI_Irecv(&header_, sizeof header_, MPI_BYTE, move().peer, tag, channel_->comm, request));
        return;
    }
    header_ = {.entered = record_->entered, .bytes = 0, .tag = move().message, .unused = 0};
    for (const Segment& segment : move().segments) header_.bytes += segment.count * o_->element_bytes;
    mpi_check(MPI_Isend(&header_, sizeof header_, MPI_BYTE, move().peer, tag, channel_->comm, request));
}

bool Messages::advance() {
    bool moved = test();
    moved |= take_arrivals();
    moved |= post_receives();
    moved |= post_sends();
    moved |= own_.advance();
    finished_ = posted_sends_ == sends_ && taken_ == receives_ && own_.finished() &&
                std::all_of(requests_.begin(), requests_.end(), [](MPI_Request r) { return r == MPI_REQUEST_NULL; });
    return moved;
}

bool Messages::test() {
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
        else if (move().kind == MoveKind::receive)
            check_header();
    }
    return true;
}

void Messages::complete_send(int place) {
    const std::int64_t i = send_at_[static_cast<std::size_t>(place)];
    if (send_item(i).forwards) slot_busy_[static_cast<std::size_t>(forwarded(i))] = false;
}

void Messages::check_header() {
    const MessageTag &theirs = header_.tag, &mine = move().message;
    std::int64_t bytes = 0;
    for (const Segment& segment : move().segments) bytes += segment.count * o_->element_bytes;
    const bool same = theirs.kind == mine.kind && theirs.chunk == mine.chunk && theirs.microbatch == mine.microbatch;
    if (!same || header_.bytes != bytes)
        throw Error(Exit::rank_failed,
                    fmt::format("comm: rank {} sent kind {} chunk {} microbatch {} of {} bytes where kind {} chunk {} "
                                "microbatch {} of {} bytes is due",
                                move().peer, theirs.kind, theirs.chunk, theirs.microbatch, header_.bytes, mine.kind, mine.chunk,
                                mine.microbatch, bytes));
    record_->peer_entered = header_.entered + channel_->clock_difference;
}

bool Messages::post_receives() {
    const std::int64_t before = posted_receives_;
    while (posted_receives_ < receives_ && posted_receives_ - taken_ < receive_window) {
        const Item item = receive_item(posted_receives_);
        if (item.portion.count > 0 && !post_receive(item, posted_receives_)) break;
        ++posted_receives_;
    }
    return posted_receives_ != before;
}

bool Messages::post_receive(const Item& item, std::int64_t i) {
    if (waits_for_own_send(item, i)) return false;
    const auto place = static_cast<std::size_t>(i % receive_window);
    std::byte* target = item.arrival == Arrival::store ? o_->out.direct(item.portion) : nullptr;
    in_place_receive_[place] = target != nullptr;
    if (target == nullptr) {
        if (slot_busy_[place]) return false;
        target = receive_slot(static_cast<int>(place));
    }
    const auto bytes = static_cast<int>(item.portion.count * o_->element_bytes);
    mpi_check(MPI_Irecv(target, bytes, MPI_BYTE, item.peer, channel_->tag, channel_->comm, &requests_[place]));
    return true;
}

// An all-reduce in place sends terms from where the sums arrive: slice me-1 at hop 0 and at the first gathering hop; directly,
// slice me-1-h at hop h and at gathering hop h.
bool Messages::waits_for_own_send(const Item& item, std::int64_t i) const {
    if (!o_->in_place || !item.gathers || (!direct_ && hop_of(i) != reducing_hops())) return false;
    return !send_complete(i - std::int64_t{reducing_hops()} * lanes_);
}

bool Messages::send_complete(std::int64_t i) const {
    const auto place = static_cast<std::size_t>(i % send_window);
    return i < posted_sends_ && (send_at_[place] != i || requests_[receive_window + place] == MPI_REQUEST_NULL);
}

bool Messages::post_sends() {
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

void Messages::post_send(const Item& item, std::int64_t i) {
    const auto place = static_cast<int>(i % send_window);
    const SliceTable& table = item.from_out ? o_->out : o_->in;
    std::byte* source = item.forwards ? receive_slot(static_cast<int>(forwarded(i))) : table.direct(item.portion);
    if (source == nullptr) {
        source = send_slot(place);
        table.pack(item.portion, source);
    }
    const std::int64_t bytes = item.portion.count * o_->element_bytes;
    // A slice sent on round the ring counts at its owner, for every member that it will reach.
    if (!item.gathers || direct_)
        record_->sent_bytes += bytes;
    else if (item.portion.slice == o_->me)
        record_->sent_bytes += bytes * (o_->members - 1);
    send_at_[static_cast<std::size_t>(place)] = i;
    mpi_check(MPI_Isend(source, static_cast<int>(bytes), MPI_BYTE, item.peer, channel_->tag, channel_->comm,
                        &requests_[static_cast<std::size_t>(receive_window + place)]));
}

bool Messages::take_arrivals() {
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

void Messages::take(const Item& item, int place) {
    std::byte* slot = receive_slot(place);
    const Portion& p = item.portion;
    switch (item.arrival) {
        case Arrival::store: return o_->out.unpack(p, slot);
        case Arrival::sum_forward:
            combine_into(move().op, move().dtype, o_->in, p, slot);
            slot_busy_[static_cast<std::size_t>(place)] = true;
            return;
        case Arrival::sum_finish: return combine_out(move().op, move().dtype, o_->in, p, slot, o_->out, p);
        case Arrival::first_term: std::memcpy(sum_slot(), slot, static_cast<std::size_t>(p.count * o_->element_bytes)); return;
        case Arrival::next_term: return combine(move().op, move().dtype, sum_slot(), slot, sum_slot(), p.count);
        case Arrival::last_term:
            combine(move().op, move().dtype, sum_slot(), slot, sum_slot(), p.count);
            return combine_out(move().op, move().dtype, o_->in, p, sum_slot(), o_->out, p);
    }
}

}  // namespace quadrille
