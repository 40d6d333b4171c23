// Measured memory: the bytes in use on each tier, counted from the extents that kernels and moves are handed and from when they
// are. Sizes and lifetimes are its own: of what lay_out wrote only the offsets are read, to tell the parts of one buffer, and
// they cancel. Else "predicted = measured" could not fail.
#pragma once
#include "ir/program.hpp"
#include "runtime/step.hpp"

#include <vector>

namespace quadrille {

class MemoryMeter {
  public:
    // The training state is there from the start, whatever the program touches of it.
    MemoryMeter(const Program& program, const Coordinate& at);
    // Op `op` is handed bytes [begin, end) of its arena, which belong to `buffer`, and has done with them before op `done`.
    void touch(BufferId buffer, std::int64_t begin, std::int64_t end, std::int32_t op, std::int32_t done);
    // So many bytes of this book are held all the time, in no buffer of the program.
    void hold(Tier tier, Book book, std::int64_t bytes);
    // Per tier what is in use from the first op on, and at each op before which that changes. A buffer counts, with the hull of what was
    // handed out of it, from its first op to its last.
    std::array<std::vector<BytesInUse>, tier_count> timeline() const;
    // The high-water mark per tier: the first greatest of the timeline.
    std::array<BytesInUse, tier_count> peaks() const;

    // First and last op of a buffer; -1 for one that was never touched.
    struct Use { std::int64_t begin = 0, end = 0; std::int32_t first = -1, last = -1; };
    const Use& use(BufferId b) const { return uses_[static_cast<std::size_t>(b)]; }

  private:
    const Program& program_;
    std::vector<Use> uses_;
    std::array<BytesInUse, tier_count> held_{};
};

}  // namespace quadrille
