// The global index lists that kernels read: positions, samples, heads. Owns the lists of one rank; what is in them follows from the
// types (ir/type.hpp).
#pragma once
#include "ir/program.hpp"
#include "device/device.hpp"

#include <map>
#include <vector>

namespace quadrille {

struct IndexList {
    std::vector<std::int64_t> host;
    const std::int64_t* device = nullptr;  // the same, for kernels
};

// Made once per (type, dim) and kept: kernels hold pointers into them.
class IndexLists {
  public:
    IndexLists(const Tables& tables, const Coordinate& at, Device& device) : tables_(tables), at_(at), device_(device) {}
    const IndexList& of(TypeId type, int dim) { return of(type, dim, 0); }
    // Sequences of the step: dim 0 holds those of one microbatch, which come after all of the microbatches before.
    const IndexList& samples(TypeId type, std::int64_t microbatch);
    // The place, among the local key-value heads, of the head that each local query head reads. Heads are dim 2 of both.
    const IndexList& kv_heads(TypeId q, TypeId k);

  private:
    const IndexList& of(TypeId type, int dim, std::int64_t shift);

    const Tables& tables_;
    Coordinate at_;
    Device& device_;
    std::map<std::array<std::int64_t, 3>, IndexList> lists_, kv_heads_;
};

}  // namespace quadrille
