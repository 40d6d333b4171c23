// Where a tensor lies: its bytes in the arena of its tier, on one rank. Pure.
#pragma once
#include "ir/program.hpp"

namespace quadrille {

struct ByteRange {
    Tier tier = Tier::device;
    std::int64_t begin = 0, end = 0;  // bytes from the tier's start
    bool empty() const { return begin == end; }
    bool overlaps(const ByteRange& o) const { return tier == o.tier && begin < o.end && o.begin < end; }
    friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

// The tensor's local elements: its buffer's offset, its own within it, and this rank's slice along slice_axes.
ByteRange range_of(const Program& program, const Coordinate& at, TensorId t);

// An op's scratch memory; empty if it has none.
ByteRange workspace_of(const Program& program, const Op& op);

}  // namespace quadrille
