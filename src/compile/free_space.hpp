// The free extents of an arena that grows at its end. Owns the extents; knows nothing of tensors or time.
//
// Invariant: extents are disjoint and never touch each other. Ordered by size and by offset, so that no search is linear: the searches for
// the lowest and the highest look at a few dozen extents and then take the best.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace quadrille {

// Which free extent a buffer gets: the smallest that is large enough, the one at the lowest offset, or the end of the one at the highest.
enum class Fit : std::uint8_t { best, lowest, highest };

class FreeSpace {
  public:
    // Nothing is free below `end`, nor above it.
    explicit FreeSpace(std::int64_t end) : end_(end) {}
    // Makes everything from the end up to `offset` free.
    void open(std::int64_t offset);
    // The offset of `bytes` that are now taken; past the end where no extent is large enough.
    std::int64_t take(std::int64_t bytes, Fit);
    void give(std::int64_t offset, std::int64_t bytes);

  private:
    using Extents = std::map<std::int64_t, std::int64_t>;  // offset -> bytes
    Extents::const_iterator find(std::int64_t bytes, Fit) const;
    Extents::const_iterator best(std::int64_t bytes) const;
    std::int64_t grow(std::int64_t bytes);
    void insert(std::int64_t offset, std::int64_t bytes);
    void remove(std::int64_t offset, std::int64_t bytes);

    Extents by_offset_;
    std::set<std::pair<std::int64_t, std::int64_t>> by_size_;
    std::int64_t end_;
};

}  // namespace quadrille
