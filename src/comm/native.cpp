#include "comm/native.hpp"

#include <algorithm>
#include <limits>

#include "comm/world.hpp"

namespace quadrille {
namespace {

constexpr std::int64_t largest_int = std::numeric_limits<int>::max();
constexpr std::int64_t largest_block = std::int64_t{1} << 30;  // bytes of one block of a type

std::byte* at(const void* base, std::int64_t bytes) { return static_cast<std::byte*>(const_cast<void*>(base)) + bytes; }

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

void Native::enter(const Operands& operands, const Channel& channel, MoveTimes& record) {
    o_ = &operands;
    channel_ = &channel;
    calls_ = posted_ = done_ = 0;
    segment_ = 0;
    offset_ = 0;
    requests_.fill(MPI_REQUEST_NULL);
    record.sent_bytes = o_->formula_bytes();
    choose_form();
    advance();
}

void Native::choose_form() {
    most_ = channel_->max_count > 0 ? channel_->max_count : largest_int;
    const std::size_t segments = move().segments.size();
    if (move().kind == MoveKind::all_reduce) {
        form_ = Form::chunks;
        for (const Segment& s : move().segments) calls_ += ceil_div(s.count, most_);
        return;
    }
    if (move().kind == MoveKind::all_to_all) {
        form_ = Form::types;
        calls_ = 1;
        return;
    }
    bool ordered = true;
    for (std::size_t k = 0; k < segments; ++k) ordered = ordered && in_order(k, nullptr);
    if (ordered) {
        form_ = Form::segments;
        calls_ = static_cast<std::int64_t>(segments);
        return;
    }
    form_ = Form::rounds;
    const std::int64_t place = static_cast<std::int64_t>(channel_->staging.size()) / window;
    portion_ = std::min(place / (o_->members + 1) / o_->element_bytes, most_);
    require(portion_ > 0, "native collectives: the staging is too small for so many members");
    calls_ = ceil_div(o_->longest(), portion_);
    for (int k = 0; k < window; ++k) call_[static_cast<std::size_t>(k)].staging = channel_->staging.data() + k * place;
}

// Whether the segment's slices are its elements one after another, and few enough for one call; and how many each is.
bool Native::in_order(std::size_t segment, std::vector<int>* counts) const {
    const std::vector<Slice>& given = move().kind == MoveKind::reduce_scatter ? move().in_slices : move().out_slices;
    const std::int64_t count = move().segments[segment].count;
    std::int64_t end = 0;
    if (count > most_) return false;
    if (counts != nullptr) counts->clear();
    for (int i = 0; i < o_->members; ++i) {
        Extent e = equal_cut(count, o_->members, i);
        if (!given.empty()) {
            const Slice& slice = given[segment * static_cast<std::size_t>(o_->members) + static_cast<std::size_t>(i)];
            if (slice.size() > 1) return false;
            e = slice.empty() ? Extent{end, 0} : slice[0];
        }
        if (e.count > 0 && e.offset != end) return false;
        end += e.count;
        if (counts != nullptr) counts->push_back(static_cast<int>(e.count));
    }
    return end == count;
}

bool Native::advance() {
    int count = 0;
    const int rc = MPI_Testsome(window, requests_.data(), &count, completed_.data(), statuses_.data());
    if (rc == MPI_ERR_IN_STATUS)
        for (int k = 0; k < count; ++k) mpi_check(statuses_[static_cast<std::size_t>(k)].MPI_ERROR);
    mpi_check(rc);
    if (count == MPI_UNDEFINED) count = 0;
    for (int k = 0; k < count; ++k) complete(call_[static_cast<std::size_t>(completed_[static_cast<std::size_t>(k)])]);
    bool moved = count > 0;
    for (int place = 0; place < window && posted_ < calls_; ++place) {
        if (requests_[static_cast<std::size_t>(place)] != MPI_REQUEST_NULL) continue;
        post(place);
        moved = true;
    }
    return moved;
}

void Native::post(int place) {
    Call& call = call_[static_cast<std::size_t>(place)];
    MPI_Request& request = requests_[static_cast<std::size_t>(place)];
    call.index = posted_++;
    switch (form_) {
        case Form::chunks: post_chunk(request); break;
        case Form::segments: post_segment(call, request); break;
        case Form::rounds: post_round(call, request); break;
        case Form::types: post_types(call, request); break;
    }
    if (request == MPI_REQUEST_NULL) complete(call);  // nothing to do, by the library's opinion
}

void Native::post_chunk(MPI_Request& request) {
    while (offset_ == move().segments[segment_].count) {
        ++segment_;
        offset_ = 0;
    }
    const Segment& s = move().segments[segment_];
    const std::int64_t count = std::min(most_, s.count - offset_), skip = offset_ * o_->element_bytes;
    const void* in = s.in == s.out ? MPI_IN_PLACE : at(s.in, skip);
    offset_ += count;
    mpi_check(MPI_Iallreduce(in, at(s.out, skip), static_cast<int>(count), channel_->types->type(move().dtype),
                             channel_->types->op(move().op, move().dtype), channel_->collectives, &request));
}

void Native::post_segment(Call& call, MPI_Request& request) {
    const Segment& s = move().segments[static_cast<std::size_t>(call.index)];
    const MPI_Datatype type = channel_->types->type(move().dtype);
    const auto me = static_cast<std::size_t>(o_->me);
    in_order(static_cast<std::size_t>(call.index), &call.counts);
    if (move().kind == MoveKind::reduce_scatter) {
        const MPI_Op op = channel_->types->op(move().op, move().dtype);
        return mpi_check(MPI_Ireduce_scatter(s.in, s.out, call.counts.data(), type, op, channel_->collectives, &request));
    }
    call.places.assign(1, 0);
    for (std::size_t i = 0; i + 1 < call.counts.size(); ++i) call.places.push_back(call.places[i] + call.counts[i]);
    const bool stands = s.in == at(s.out, call.places[me] * o_->element_bytes);
    mpi_check(MPI_Iallgatherv(stands ? MPI_IN_PLACE : s.in, call.counts[me], type, s.out, call.counts.data(), call.places.data(), type,
                              channel_->collectives, &request));
}

Portion Native::round_portion(int slice, std::int64_t round) const {
    const SliceTable& whole = move().kind == MoveKind::reduce_scatter ? o_->in : o_->out;
    const std::int64_t first = round * portion_;
    return {slice, first, std::clamp<std::int64_t>(whole.length(slice) - first, 0, portion_)};
}

// The staging of a call: every slice's portion, then this member's own.
void Native::post_round(Call& call, MPI_Request& request) {
    const bool reduces = move().kind == MoveKind::reduce_scatter;
    const MPI_Datatype type = channel_->types->type(move().dtype);
    std::byte* mine = call.staging + o_->members * portion_ * o_->element_bytes;
    call.counts.clear();
    call.places.clear();
    int end = 0;
    for (int i = 0; i < o_->members; ++i) {
        const Portion p = round_portion(i, call.index);
        if (reduces && p.count > 0) o_->in.pack(p, call.staging + end * o_->element_bytes);
        call.counts.push_back(static_cast<int>(p.count));
        call.places.push_back(end);
        end += static_cast<int>(p.count);
    }
    if (reduces) {
        const MPI_Op op = channel_->types->op(move().op, move().dtype);
        return mpi_check(MPI_Ireduce_scatter(call.staging, mine, call.counts.data(), type, op, channel_->collectives, &request));
    }
    const Portion own = round_portion(o_->me, call.index);
    if (own.count > 0) o_->in.pack(own, mine);
    mpi_check(MPI_Iallgatherv(mine, static_cast<int>(own.count), type, call.staging, call.counts.data(), call.places.data(), type,
                              channel_->collectives, &request));
}

void Native::post_types(Call& call, MPI_Request& request) {
    const auto make = [this](const SliceTable& table, int slice) {
        lengths_.clear();
        addresses_.clear();
        table.each_run({slice, 0, table.length(slice)}, [this](const std::byte* data, std::int64_t, std::int64_t count) {
            const std::int64_t bytes = count * o_->element_bytes;
            for (std::int64_t done = 0; done < bytes; done += largest_block) {
                MPI_Aint address = 0;
                mpi_check(MPI_Get_address(data + done, &address));
                addresses_.push_back(address);
                lengths_.push_back(static_cast<int>(std::min(largest_block, bytes - done)));
            }
        });
        require(static_cast<std::int64_t>(lengths_.size()) <= largest_int, "a slice has more runs than an int counts");
        MPI_Datatype type = MPI_DATATYPE_NULL;
        mpi_check(MPI_Type_create_hindexed(static_cast<int>(lengths_.size()), lengths_.data(), addresses_.data(), MPI_BYTE, &type));
        mpi_check(MPI_Type_commit(&type));
        return type;
    };
    const auto n = static_cast<std::size_t>(o_->members);
    call.types.clear();
    call.in_types.clear();
    call.counts.assign(n, 0);
    call.in_counts.assign(n, 0);
    call.places.assign(n, 0);
    for (int i = 0; i < o_->members; ++i) {
        const auto k = static_cast<std::size_t>(i);
        call.in_counts[k] = o_->in.length(i) > 0;
        call.counts[k] = o_->out.length(i) > 0;
        call.in_types.push_back(make(o_->in, i));
        call.types.push_back(make(o_->out, i));
    }
    mpi_check(MPI_Ialltoallw(MPI_BOTTOM, call.in_counts.data(), call.places.data(), call.in_types.data(), MPI_BOTTOM, call.counts.data(),
                             call.places.data(), call.types.data(), channel_->collectives, &request));
}

void Native::complete(Call& call) {
    ++done_;
    if (form_ == Form::types) {
        for (MPI_Datatype& type : call.types) mpi_check(MPI_Type_free(&type));
        for (MPI_Datatype& type : call.in_types) mpi_check(MPI_Type_free(&type));
    }
    if (form_ != Form::rounds) return;
    if (move().kind == MoveKind::reduce_scatter) {
        const Portion p = round_portion(o_->me, call.index);
        if (p.count > 0) o_->out.unpack(p, call.staging + o_->members * portion_ * o_->element_bytes);
        return;
    }
    for (int i = 0; i < o_->members; ++i) {
        const Portion p = round_portion(i, call.index);
        if (p.count > 0) o_->out.unpack(p, call.staging + call.places[static_cast<std::size_t>(i)] * o_->element_bytes);
    }
}

}  // namespace quadrille
