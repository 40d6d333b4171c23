// The values of the training state as fp32, from where they are kept and back. Pure arithmetic on pieces, copies between tiers, and conversions.
#pragma once
#include "ir/extents.hpp"
#include "runtime/state.hpp"

#include <functional>
#include <span>
#include <vector>

namespace quadrille {

using Pieces = std::vector<Piece>;
using PiecesOf = std::function<Pieces(std::size_t tensor)>;  // a rank's of a tensor, ascending; each is asked for once

std::int64_t total(const Pieces&);

// Elements begin .. begin + count of those that the pieces stand for, in their order.
Pieces portion(const Pieces&, std::int64_t begin, std::int64_t count);

// What this rank writes of what it holds: the holders of copies share the work equally.
Pieces share_of(const Holding&);

// Their elements in the parameter; neighbours joined.
Extents elements_of(const Pieces&);

// Memory that values pass through on their way: `values`, fp32, and a window for what the
// host does not reach: memory of the device, and the nvme tier's file, which is read and written in whole blocks.
class Passage {
  public:
    // Through this memory, at a multiple of 4 bytes; through a little of its own where that is less.
    explicit Passage(std::span<std::byte> memory);
    std::int64_t capacity() const { return capacity_; }  // elements
    float* values() const { return values_; }
    std::byte* window() const { return window_; }

  private:
    std::vector<std::byte> own_;
    std::int64_t capacity_ = 0;
    float* values_ = nullptr;
    std::byte* window_ = nullptr;
};

// Where the pieces' values stand one after the other in fp32 already, as rows do that a rank has of each; else nullptr.
const float* values_in_place(const Pieces&);
// The pieces' values one after the other: where they lie so already, or in the passage, behind its first `before`; with these at most its capacity.
// Throws Error{io_failed} of the nvme tier.
const float* gathered(const Pieces&, Arena&, const Passage&, std::int64_t before = 0);
// The same into memory for all of them, passing through the passage's window alone.
void gather_into(float* to, const Pieces&, Arena&, const Passage&);
// The way back, rounded to the pieces' types, in place of what is there or added to it; `from` may be the passage's values.
void scatter(const float* from, const Pieces&, Arena&, const Passage&);

}  // namespace quadrille
