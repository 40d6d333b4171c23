// A move as one member of its group sees it: the buffers cut in slices, and the slices resolved to addresses. Invariant: a side that is
// whole has one slice per member, the other side only this member's. Moves nothing; keeps its capacity, so a move that has run once
// allocates nothing.
#pragma once
#include "comm/slices.hpp"

namespace quadrille {

struct Operands {
    const Move* move = nullptr;
    int members = 1, me = 0;
    std::int64_t element_bytes = 1;
    SliceTable in, out;
    bool in_place = false;  // an all-reduce some of whose segments are summed where they stand

    void resolve(const Move& of, int of_members, int member);
    bool reduces() const { return move->kind == MoveKind::all_reduce || move->kind == MoveKind::reduce_scatter; }
    int member(int i) const { return ((i % members) + members) % members; }  // of the ring
    // The longest slice that any member may have to carry, in elements; the same on all members except in an all_to_all.
    std::int64_t longest() const { return std::max(in.longest(), out.longest()); }
    std::int64_t bytes_of_slices(const SliceTable& table) const;  // of all of them
    // MoveTimes::sent_bytes of a collective by its formula, where nobody counts what goes out. Not of a ring_shift.
    std::int64_t formula_bytes() const;

  private:
    void resolve_side(SliceTable& table, bool input, bool whole, const std::vector<Slice>& given) const;
    void resolve_segments(SliceTable& table, bool input) const;
};

// Slices [first, end) of `in`, copied to where they stand in `out`, a grain at a time.
class LocalCopy {
  public:
    void begin(const Operands& operands, int first, int end);
    bool advance();  // whether anything was copied
    bool finished() const { return slice_ == end_; }

  private:
    const Operands* o_ = nullptr;
    int slice_ = 0, end_ = 0;
    std::int64_t done_ = 0;  // elements of slice_
};

}  // namespace quadrille
