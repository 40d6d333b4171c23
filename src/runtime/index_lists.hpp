// The global index lists that kernels read: positions, samples, heads. Owns the lists of one rank; what is in them follows from the
// types (ir/type.hpp).
#pragma once
#include "ir/program.hpp"

#include <map>
#include <vector>

namespace quadrille {

// Made once per (type, dim) and kept: kernels hold pointers into them.
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
