// Runs of a row-major array's elements as boxes of its shape: what HDF5 calls hyperslabs. Pure.
#pragma once
#include "ir/extents.hpp"

#include <cstdint>
#include <vector>

namespace quadrille {

struct Box {
    std::vector<std::int64_t> start, count;  // per dim
    friend bool operator==(const Box&, const Box&) = default;
};

// Disjoint boxes that hold exactly the elements of `runs`, which ascend and do not overlap; neighbours that make a larger box together are joined, so
// a piece that is cut along some dims is one. shape: at least one dim, each at least 1.
std::vector<Box> boxes_of(const std::vector<std::int64_t>& shape, const Extents& runs);

}  // namespace quadrille
