// How the extents of a gather are told to a kernel: in runs of equal extents at equal distances. Pure.
#pragma once
#include "ir/extents.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace quadrille::cuda {

// `times` extents of `count`, `stride` apart from `from` on, one behind the other from `to` on.
struct GatherRun {
    std::int64_t from = 0, to = 0, count = 0, stride = 0, times = 1;
};

// In bytes.
std::vector<GatherRun> gather_runs_of(std::span<const Extent>, std::int64_t element_bytes);

// The widest access, of 1 to 16 bytes, that divides all places and counts of the runs, and the bits that the buffers' addresses have.
std::int64_t gather_unit(std::span<const GatherRun>, std::uintptr_t addresses);

}  // namespace quadrille::cuda
