// Runs of consecutive elements or indices. Pieces of a dim and of a buffer are written as lists of runs, never element by element, since a
// flat buffer has hundreds of millions of elements. Pure.
#pragma once
#include <cstdint>
#include <vector>

namespace quadrille {

struct Extent {
    std::int64_t offset = 0, count = 0;
    friend bool operator==(const Extent&, const Extent&) = default;
};
// In an order that matters: the one in which the elements stand in the piece's own contiguous buffer.
using Extents = std::vector<Extent>;

// Appends a run; one that goes on where the last one ends is joined to it, an empty one is dropped.
void append(Extents& to, Extent e);

// Elements of all runs.
std::int64_t total(const Extents&);

// Elements begin .. begin + count of the list that the runs stand for.
Extents portion(const Extents&, std::int64_t begin, std::int64_t count);

// The indices of `a` that are in `b` too, in a's order.
Extents intersection(const Extents& a, const Extents& b);

// Local positions, in a list of indices `whole`, of those of `part` (all of which must be there), in part's order.
Extents positions_in(const Extents& whole, const Extents& part);

// Member i's elements when `count` are cut in n nearly equal runs: how a collective over n ranks shares its work where nothing else is said.
constexpr Extent equal_cut(std::int64_t count, std::int64_t n, std::int64_t i) {
    // count·i/n without overflow: count = q·n + r.
    const std::int64_t q = count / n, r = count % n;
    const std::int64_t first = q * i + r * i / n, last = q * (i + 1) + r * (i + 1) / n;
    return {first, last - first};
}

}  // namespace quadrille
