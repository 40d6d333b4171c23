// Runs are found from left to right: an extent joins the run before it where count and distance go on.
#include "cuda/gather_runs.hpp"

namespace quadrille::cuda {

std::vector<GatherRun> gather_runs_of(std::span<const Extent> extents, std::int64_t element_bytes) {
    std::vector<GatherRun> runs;
    std::int64_t to = 0;
    for (const Extent& e : extents) {
        if (e.count == 0) continue;
        const std::int64_t from = e.offset * element_bytes, count = e.count * element_bytes;
        GatherRun* const last = runs.empty() ? nullptr : &runs.back();
        if (last && last->count == count && (last->times == 1 || from == last->from + last->times * last->stride)) {
            if (last->times == 1) last->stride = from - last->from;
            ++last->times;
        } else {
            runs.push_back({from, to, count, 0, 1});
        }
        to += count;
    }
    return runs;
}

std::int64_t gather_unit(std::span<const GatherRun> runs, std::uintptr_t addresses) {
    std::uintptr_t bits = addresses | 16;
    for (const GatherRun& r : runs) bits |= static_cast<std::uintptr_t>(r.from | r.to | r.count | r.stride);
    return static_cast<std::int64_t>(bits & -bits);
}

}  // namespace quadrille::cuda
