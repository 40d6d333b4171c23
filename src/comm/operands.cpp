#include "comm/operands.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace quadrille {
namespace {

constexpr std::int64_t copy_grain_bytes = 256 << 10;  // copied in one call, so that urgent moves get in

}  // namespace

void Operands::resolve(const Move& of, int of_members, int mine) {
    move = &of;
    members = of_members;
    me = mine;
    element_bytes = bytes_of(of.dtype);
    in.clear(element_bytes);
    out.clear(element_bytes);
    in_place = of.kind == MoveKind::all_reduce &&
               std::any_of(of.segments.begin(), of.segments.end(), [](const Segment& s) { return s.in == s.out; });
    switch (of.kind) {
        case MoveKind::all_reduce:
            require(of.in_slices.empty() && of.out_slices.empty(), "an all_reduce is always cut equally");
            resolve_side(in, true, true, {});
            resolve_side(out, false, true, {});
            break;
        case MoveKind::reduce_scatter:
            resolve_side(in, true, true, of.in_slices);
            resolve_side(out, false, false, of.in_slices);
            break;
        case MoveKind::all_gather:
            resolve_side(in, true, false, of.out_slices);
            resolve_side(out, false, true, of.out_slices);
            break;
        case MoveKind::all_to_all:
            resolve_side(in, true, true, of.in_slices);
            resolve_side(out, false, true, of.out_slices);
            require(in.length(me) == out.length(me), "all_to_all: what a member keeps for itself has two lengths");
            break;
        case MoveKind::ring_shift:
            resolve_segments(in, true);
            resolve_segments(out, false);
            break;
        case MoveKind::send: resolve_segments(in, true); break;
        case MoveKind::receive: resolve_segments(out, false); break;
    }
}

std::int64_t Operands::bytes_of_slices(const SliceTable& table) const {
    std::int64_t sum = 0;
    for (int i = 0; i < table.size(); ++i) sum += table.length(i);
    return sum * element_bytes;
}

// MoveTimes::sent_bytes says where it comes from.
std::int64_t Operands::formula_bytes() const {
    const std::int64_t others = members - 1, bytes = element_bytes;
    const auto scattered = [&] { return bytes_of_slices(in) - in.length(me) * bytes; };
    const auto gathered = [&](const SliceTable& table) { return table.length(me) * bytes * others; };
    switch (move->kind) {
        case MoveKind::all_reduce: return scattered() + gathered(out);
        case MoveKind::all_gather: return gathered(in);
        default: return scattered();
    }
}

// One slice per member: all of them of a whole buffer, else only this rank's, which then stands alone and contiguous.
void Operands::resolve_side(SliceTable& table, bool input, bool whole, const std::vector<Slice>& given) const {
    const std::size_t segments = move->segments.size();
    require(given.empty() || given.size() == segments * static_cast<std::size_t>(members), "a move needs one slice per segment and member");
    for (int i = 0; i < members; ++i) {
        table.begin_slice();
        if (!whole && i != me) continue;
        for (std::size_t k = 0; k < segments; ++k) {
            const Segment& segment = move->segments[k];
            const auto* base = static_cast<const std::byte*>(input ? segment.in : segment.out);
            if (given.empty()) {
                const Extent e = equal_cut(segment.count, members, i);
                table.add(base + (whole ? e.offset * element_bytes : 0), e.count);
                continue;
            }
            std::int64_t at = 0;
            for (const Extent& e : given[k * static_cast<std::size_t>(members) + static_cast<std::size_t>(i)]) {
                table.add(base + (whole ? e.offset : at) * element_bytes, e.count);
                at += e.count;
            }
        }
    }
}

void Operands::resolve_segments(SliceTable& table, bool input) const {
    for (const Segment& segment : move->segments) {
        table.begin_slice();
        table.add(input ? segment.in : segment.out, segment.count);
    }
}

void LocalCopy::begin(const Operands& operands, int first, int end) {
    o_ = &operands;
    slice_ = first;
    end_ = end;
    done_ = 0;
}

bool LocalCopy::advance() {
    if (finished()) return false;
    const std::int64_t grain = std::max<std::int64_t>(1, copy_grain_bytes / o_->element_bytes);
    const std::int64_t count = std::min(grain, o_->in.length(slice_) - done_);
    if (count > 0) {
        const Portion portion{slice_, done_, count};
        copy(o_->in, portion, o_->out, portion, o_->element_bytes);
        done_ += count;
    }
    if (done_ == o_->in.length(slice_)) {
        ++slice_;
        done_ = 0;
    }
    return true;
}

}  // namespace quadrille
