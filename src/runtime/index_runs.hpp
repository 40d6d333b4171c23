// A type's global index list along one dim as runs of consecutive indices: what ir's `indices` lists one by one, without the
// list, since a flat buffer's dim has hundreds of millions of elements. Pure.
#pragma once
#include "ir/program.hpp"

#include <deque>
#include <map>
#include <vector>

namespace quadrille {

struct IndexRun {
    std::int64_t first = 0, count = 0;
    friend bool operator==(const IndexRun&, const IndexRun&) = default;
};
using IndexRuns = std::vector<IndexRun>;

// The global indices along `dim` that the rank at `at` holds, in its local order; neighbouring runs are joined.
IndexRuns index_runs(const Grid& grid, const TensorType& t, int dim, const Coordinate& at);

// The indices of `a` that are in `b` too, in a's order.
IndexRuns intersection(const IndexRuns& a, const IndexRuns& b);

// Local positions, in a list of indices `whole`, of those of `part` (all of which must be there), in part's order.
IndexRuns positions_in(const IndexRuns& whole, const IndexRuns& part);

// Where this rank's piece of a dim starts; the piece must be one run.
std::int64_t first_index(const Grid& grid, const TensorType& t, int dim, const Coordinate& at);

// Index lists of one rank, made once per (type, dim) and kept: kernels hold pointers into them.
class IndexLists {
  public:
    IndexLists(const Tables& tables, const Coordinate& at) : tables_(tables), at_(at) {}
    const std::vector<std::int64_t>& of(TypeId type, int dim) { return of(type, dim, 0); }
    // Sequences of the step: dim 0 holds those of one microbatch, which come after all of the microbatches before.
    const std::vector<std::int64_t>& samples(TypeId type, std::int64_t microbatch);
    // The place, among the local key-value heads, of the head that each local query head reads. Heads are dim 2 of both.
    const std::vector<std::int64_t>& kv_heads(TypeId q, TypeId k);

  private:
    const std::vector<std::int64_t>& of(TypeId type, int dim, std::int64_t shift);

    const Tables& tables_;
    Coordinate at_;
    std::map<std::array<std::int64_t, 3>, std::vector<std::int64_t>> lists_, kv_heads_;
};

}  // namespace quadrille
