// The slices of a move, resolved to addresses: which runs of memory hold elements [first, first + count) of slice i. Packs,
// unpacks and combines portions. Invariant: the runs of a slice stand in its canonical order, adjacent ones merged. Owns no
// element; keeps its capacity over `clear`, so a move that has run once allocates nothing.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/rounding.hpp"
#include "comm/move.hpp"

namespace quadrille {

// A stretch of one slice: elements [first, first + count).
struct Portion {
    int slice = 0;
    std::int64_t first = 0, count = 0;
};

// How a buffer is written that nobody reads soon: past the caches, if it is larger than they are (stream.hpp).
enum class Write { cached, streamed };

class SliceTable {
  public:
    void clear(std::int64_t element_bytes);
    void begin_slice();
    // Appends elements to the slice begun last.
    void add(const void* data, std::int64_t count);

    int size() const { return static_cast<int>(ends_.size()); }
    std::int64_t length(int slice) const;  // elements
    std::int64_t longest() const;
    // Where the portion stands if it is one run, else nullptr.
    std::byte* direct(const Portion& p) const;
    // Calls f(data, at, count) for each run of the portion: elements [at, at + count) of the portion stand at data.
    template <class F>
    void each_run(const Portion& p, F f) const;

    void pack(const Portion& p, std::byte* to) const;
    void unpack(const Portion& p, const std::byte* from, Write write = Write::cached) const;

  private:
    struct Run {
        std::byte* data;
        std::int64_t first, count;
    };
    std::size_t begin_of(int slice) const { return slice == 0 ? 0 : ends_[static_cast<std::size_t>(slice) - 1]; }
    std::size_t find(int slice, std::int64_t element) const;

    std::int64_t bytes_ = 1;  // of one element
    std::vector<Run> runs_;
    std::vector<std::size_t> ends_;  // of each slice, in runs_
};

template <class F>
void SliceTable::each_run(const Portion& p, F f) const {
    std::int64_t at = 0;
    for (std::size_t r = find(p.slice, p.first); at < p.count; ++r) {
        const std::int64_t skip = p.first + at - runs_[r].first, n = std::min(runs_[r].count - skip, p.count - at);
        f(runs_[r].data + skip * bytes_, at, n);
        at += n;
    }
}

// out's portion = in's portion, of equal count.
void copy(const SliceTable& in, const Portion& from, const SliceTable& out, const Portion& to, std::int64_t element_bytes);
// slot = slot op in's portion.
void combine_into(ReduceOp op, DType dtype, const SliceTable& in, const Portion& p, std::byte* slot);
// out's portion = slot op in's portion.
void combine_out(ReduceOp op, DType dtype, const SliceTable& in, const Portion& p, const std::byte* slot, const SliceTable& out,
                 const Portion& to, Write write = Write::cached);

}  // namespace quadrille
