#include "comm/native.hpp"

#include <algorithm>
#include <limits>

#include "comm/world.hpp"

namespace quadrille {
namespace {

constexpr std::int64_t largest_int = std::numeric_limits<int>::max();
constexpr std::int64_t largest_block = std::int64_t{1} << 30;  // bytes of one block of a type

std::byte* at(const void* base, std::int64_t bytes) { return static_cast<std::byte*>(const_cast<void*>(base)) + bytes; }

}  // namespace

void Native::begin() {
    calls_ = posted_ = done_ = 0;
    segment_ = 0;
    offset_ = 0;
    requests_.fill(MPI_REQUEST_NULL);
    record_->sent_bytes = o_->formula_bytes();
    choose_form();
}

void Native::choose_form() {
    most_ = std::max<std::int64_t>(1, call_bytes / o_->element_bytes);
    if (channel_->max_count > 0) most_ = std::min(most_, channel_->max_count);
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
    if (move().kind == MoveKind::all_gather && stretches()) {
        form_ = Form::places;
        portion_ = std::max<std::int64_t>(1, most_ / o_->members);
        for (std::size_t k = 0; k < move().segments.size(); ++k) calls_ += portions(k);
        return;
    }
    form_ = Form::rounds;
    const std::int64_t place = static_cast<std::int64_t>(channel_->staging.size()) / window;
    portion_ = std::min(place / (o_->members + 1) / o_->element_bytes, most_);
    require(portion_ > 0, "native collectives: the staging is too small for so many members");
    calls_ = ceil_div(o_->longest(), portion_);
    for (int k = 0; k < window; ++k) call_[static_cast<std::size_t>(k)].staging = channel_->staging.data() + k * place;
}

// all_gather: the member's slice of a segment, if it is one piece.
Extent Native::stretch(std::size_t segment, int member) const {
    if (move().out_slices.empty()) return equal_cut(move().segments[segment].count, o_->members, member);
    const Slice& slice = move().out_slices[segment * static_cast<std::size_t>(o_->members) + static_cast<std::size_t>(member)];
    return slice.empty() ? Extent{} : slice[0];
}

// Whether all slices are single pieces at places that an int counts.
bool Native::stretches() const {
    return std::all_of(move().out_slices.begin(), move().out_slices.end(), [](const Slice& s) { return s.size() <= 1; }) &&
           std::all_of(move().segments.begin(), move().segments.end(), [](const Segment& s) { return s.count <= largest_int; });
}

std::int64_t Native::portions(std::size_t segment) const {
    std::int64_t longest = 0;
    for (int i = 0; i < o_->members; ++i) longest = std::max(longest, stretch(segment, i).count);
    return ceil_div(longest, portion_);
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
        case Form::places: post_places(call, request); break;
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
    const void* in = s.in == s.out ? MPI_IN_PLACE : at(s.in, skip);  // on all members alike, as in post_places
    offset_ += count;
    mpi_check(MPI_Iallreduce(in, at(s.out, skip), static_cast<int>(count), channel_->types->type(move().dtype),
                             channel_->types->op(move().op, move().dtype), channel_->collectives, &request));
}

// What this member gives stands in its place already, or not, on all members alike: their programs place it by one rule.
void Native::post_places(Call& call, MPI_Request& request) {
    while (offset_ >= portions(segment_) * portion_) {
        ++segment_;
        offset_ = 0;
    }
    const Segment& s = move().segments[segment_];
    const MPI_Datatype type = channel_->types->type(move().dtype);
    call.counts.clear();
    call.places.clear();
    for (int i = 0; i < o_->members; ++i) {
        const Extent e = stretch(segment_, i);
        call.counts.push_back(static_cast<int>(std::clamp<std::int64_t>(e.count - offset_, 0, portion_)));
        call.places.push_back(static_cast<int>(e.offset + std::min(offset_, e.count)));
    }
    const auto me = static_cast<std::size_t>(o_->me);
    const std::byte* own = at(s.in, std::min(offset_, stretch(segment_, o_->me).count) * o_->element_bytes);
    const bool stands = own == at(s.out, call.places[me] * o_->element_bytes);
    offset_ += portion_;
    mpi_check(MPI_Iallgatherv(stands ? MPI_IN_PLACE : own, call.counts[me], type, s.out, call.counts.data(), call.places.data(), type,
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
