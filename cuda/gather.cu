// Pieces of a buffer laid one behind the other, and lists of indices repeated. The extents of a cut follow one another at equal distances (rows of
// a block of columns): they are grouped in runs, so that a launch takes few descriptions for many extents. Each byte is read and written once, in
// the widest accesses that divide all addresses.
#include "cuda/kernels.hpp"
#include "cuda/gather_runs.hpp"
#include "cuda/launch.cuh"
#include "cuda/map_shape.hpp"

namespace quadrille {

using namespace cuda;

namespace {

constexpr int runs_a_launch = 64;

struct Runs {
    GatherRun run[runs_a_launch];
};

// blockIdx.y is the run. Counts are in units of U.
template <class U>
__global__ void __launch_bounds__(map_threads) gather_runs(const U* from, const Runs runs, U* to) {
    const GatherRun& run = runs.run[blockIdx.y];
    const std::int64_t all = run.count * run.times;
    for (std::int64_t i = std::int64_t{blockIdx.x} * map_threads + threadIdx.x; i < all; i += std::int64_t{gridDim.x} * map_threads) {
        // Division of 64 bits is slow, and seldom needed.
        const std::int64_t time = all >> 32 == 0 ? static_cast<std::uint32_t>(i) / static_cast<std::uint32_t>(run.count) : i / run.count;
        to[run.to + i] = from[run.from + time * run.stride + i - time * run.count];
    }
}

template <class U>
void start_gather(cudaStream_t stream, const void* from, std::span<const GatherRun> runs, void* to) {
    Runs some;
    std::int64_t longest = 0;
    for (std::size_t i = 0; i < runs.size(); ++i) {
        some.run[i] = runs[i];
        longest = std::max(longest, runs[i].count * runs[i].times);
    }
    launch(gather_runs<U>, Grid{dim3(map_blocks(longest, 1), static_cast<unsigned>(runs.size())), map_threads}, stream, static_cast<const U*>(from),
           some, static_cast<U*>(to));
}

__global__ void __launch_bounds__(map_threads) repeat_rows(const std::int64_t* values, std::int64_t count, std::int64_t all, std::int32_t* to) {
    for (std::int64_t i = std::int64_t{blockIdx.x} * map_threads + threadIdx.x; i < all; i += std::int64_t{gridDim.x} * map_threads)
        to[i] = static_cast<std::int32_t>(values[i % count]);
}

}  // namespace

void CudaKernels::gather(const void* from, std::span<const Extent> extents, std::int64_t element_bytes, void* to) {
    std::vector<GatherRun> runs = gather_runs_of(extents, element_bytes);
    const std::int64_t unit = gather_unit(runs, reinterpret_cast<std::uintptr_t>(from) | reinterpret_cast<std::uintptr_t>(to));
    for (GatherRun& r : runs) r.from /= unit, r.to /= unit, r.count /= unit, r.stride /= unit;
    for (std::size_t first = 0; first < runs.size(); first += runs_a_launch) {
        const auto some = std::span(runs).subspan(first, std::min<std::size_t>(runs_a_launch, runs.size() - first));
        switch (unit) {
            case 16: start_gather<uint4>(stream_, from, some, to); break;
            case 8: start_gather<uint2>(stream_, from, some, to); break;
            case 4: start_gather<std::uint32_t>(stream_, from, some, to); break;
            case 2: start_gather<std::uint16_t>(stream_, from, some, to); break;
            default: start_gather<std::uint8_t>(stream_, from, some, to);
        }
    }
}

void CudaKernels::repeat(const std::int64_t* values, std::int64_t count, std::int64_t rows, std::int32_t* to) {
    launch(repeat_rows, Grid{map_blocks(count * rows, 1), map_threads}, stream_, values, count, count * rows, to);
}

}  // namespace quadrille
