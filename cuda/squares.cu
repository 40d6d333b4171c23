// Sums of squares: a warp for each block of 1024 elements, read once; then one block of threads adds the blocks' sums, each thread a run of 64 in
// order (or of as many as it takes), the runs in a fixed tree. A buffer of a billion elements leaves 8 MB to the second kernel.
#include "base/rounding.hpp"
#include "cuda/kernels.hpp"
#include "cuda/launch.cuh"
#include "cuda/reduce.cuh"
#include "cuda/typed.cuh"

#include <algorithm>
#include <array>

namespace quadrille {
namespace {

using namespace cuda;

constexpr std::int64_t block_elements = 1024;
constexpr unsigned warps_at_once = 8, adding_threads = 1024;
constexpr std::size_t stretches_at_once = 128;
constexpr std::int64_t shortest_run = 64;

constexpr std::int64_t blocks_of(std::int64_t elements) { return ceil_div(elements, block_elements); }

struct Stretches {
    std::array<Extent, stretches_at_once> stretch;
    std::array<std::int64_t, stretches_at_once> first_block;
    int size = 0;
    std::int64_t blocks = 0;
};
static_assert(sizeof(Stretches) < 4000, "kernels take 4 KiB of arguments");

__global__ void __launch_bounds__(warps_at_once * warp_threads) block_squares(const void* g, DType t, const Stretches s, bool fours, double* sums) {
    const std::int64_t block = static_cast<std::int64_t>(blockIdx.x) * warps_at_once + threadIdx.x / warp_threads;
    if (block >= s.blocks) return;
    int k = 0;
    while (k + 1 < s.size && s.first_block[static_cast<std::size_t>(k + 1)] <= block) ++k;
    const Extent e = s.stretch[static_cast<std::size_t>(k)];
    const std::int64_t within = (block - s.first_block[static_cast<std::size_t>(k)]) * block_elements;
    const std::int64_t first = e.offset + within, count = e.count - within < block_elements ? e.count - within : block_elements;
    double sum = 0.0;
    for (std::int64_t i = 4 * static_cast<std::int64_t>(threadIdx.x % warp_threads); i < count; i += 4 * warp_threads) {
        float x[4] = {};
        if (fours && (first & 3) == 0 && i + 4 <= count) load_four_as(g, t, first + i, x);
        else
            for (int j = 0; j < 4; ++j)
                if (i + j < count) x[j] = load_as(g, t, first + i + j);
        for (int j = 0; j < 4; ++j) sum += static_cast<double>(x[j]) * static_cast<double>(x[j]);
    }
    sum = warp_reduce(sum, Sum{});
    if (threadIdx.x % warp_threads == 0) sums[block] = sum;
}

__global__ void __launch_bounds__(adding_threads) add_blocks(const double* sums, std::int64_t count, std::int64_t run, double* total) {
    __shared__ double warps[most_warps];
    const std::int64_t first = threadIdx.x * run;
    double sum = 0.0;
    for (std::int64_t i = first; i < first + run && i < count; ++i) sum += sums[i];
    sum = block_reduce(sum, 0.0, warps, Sum{});
    if (threadIdx.x == 0) *total = sum;
}

}  // namespace

void CudaKernels::sum_squares(const void* g, DType t, std::span<const Extent> stretches, double* sum, void* workspace) {
    const bool fours = behind_four(g, t) == 0;
    auto* const sums = static_cast<double*>(workspace);
    std::int64_t blocks = 0;
    while (!stretches.empty()) {
        Stretches now;
        for (const Extent& e : stretches.first(std::min(stretches.size(), stretches_at_once))) {
            const auto k = static_cast<std::size_t>(now.size++);
            now.stretch[k] = e;
            now.first_block[k] = now.blocks;
            now.blocks += blocks_of(e.count);
        }
        const auto grid = Grid{static_cast<unsigned>(ceil_div(now.blocks, warps_at_once)), warps_at_once * warp_threads};
        launch(block_squares, grid, stream_, g, t, now, fours, sums + blocks);
        blocks += now.blocks;
        stretches = stretches.subspan(static_cast<std::size_t>(now.size));
    }
    launch(add_blocks, Grid{1, adding_threads}, stream_, sums, blocks, std::max(shortest_run, ceil_div(blocks, adding_threads)), sum);
}

std::int64_t CudaKernels::sum_squares_workspace(std::int64_t count, std::int64_t stretches) const {
    return (blocks_of(count) + stretches) * static_cast<std::int64_t>(sizeof(double));
}

}  // namespace quadrille
