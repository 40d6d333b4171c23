#include "comm/algorithm.hpp"

#include <algorithm>

#include "comm/doubling.hpp"
#include "comm/measured.hpp"

namespace quadrille {
namespace {

// A sum whose every element stands alone: a loss, a norm, a count.
bool of_scalars(const Move& m) {
    return m.kind == MoveKind::all_reduce && static_cast<std::int64_t>(m.segments.size()) <= Doubling::most_scalars &&
           std::all_of(m.segments.begin(), m.segments.end(), [](const Segment& s) { return s.count <= 1; });
}

std::int64_t whole_bytes(const Move& m) {
    std::int64_t bytes = 0;
    for (const Segment& s : m.segments) bytes += s.count * bytes_of(m.dtype);
    return bytes;
}

// The maximum of a set is the same in any order.
bool of_few_maxima(const Move& m) { return m.kind == MoveKind::all_reduce && m.op == ReduceOp::max && whole_bytes(m) <= Doubling::most_bytes; }

}  // namespace

bool needs_place(MoveKind kind) {
    return kind != MoveKind::ring_shift && kind != MoveKind::send && kind != MoveKind::receive;
}

Algorithm algorithm_for(Algorithm of_group, const Move& move, int members, const MeasuredTimes& times) {
    if (members == 1 || !needs_place(move.kind)) return Algorithm::ring;
    if (of_scalars(move)) return Algorithm::doubling;  // native too: what each member's clip factor hangs on must be the same bits on all
    if (of_group == Algorithm::native) return of_group;
    if (of_group == Algorithm::ring && of_few_maxima(move)) return Algorithm::doubling;
    // A member knows only its own part of an all_to_all, so it cannot tell in how many rounds the others pass it on.
    if (move.kind == MoveKind::all_to_all) return Algorithm::ring;
    return of_group == Algorithm::automatic ? times.fastest(move.kind, members, whole_bytes(move)) : of_group;
}

}  // namespace quadrille
