// Counts and the few float64 numbers of a step. They stay on the device, so that nothing waits for the host.
#include "cuda/kernels.hpp"
#include "cuda/launch.cuh"
#include "cuda/reduce.cuh"

#include <algorithm>
#include <array>

namespace quadrille {
namespace {

using namespace cuda;

constexpr unsigned count_threads = 1024;
constexpr std::size_t parts_at_once = 128;

struct Parts {
    std::array<MaskPart, parts_at_once> part;
    int size;
};
static_assert(sizeof(Parts) < 4000, "kernels take 4 KiB of arguments");

// A step's masks are some hundred thousand bytes: one block reads them while a matrix product would start.
__global__ void count_bytes(const Parts parts, double* total, bool accumulate) {
    __shared__ long long warps[most_warps];
    long long found = 0;
    for (int p = 0; p < parts.size; ++p)
        for (std::int64_t i = threadIdx.x; i < parts.part[static_cast<std::size_t>(p)].count; i += blockDim.x)
            found += parts.part[static_cast<std::size_t>(p)].mask[i] != 0;
    found = block_reduce(found, 0ll, warps, Sum{});
    if (threadIdx.x == 0) *total = (accumulate ? *total : 0.0) + static_cast<double>(found);
}

__global__ void reciprocal_of(const double* x, double* y) { *y = *x == 0.0 ? 0.0 : 1.0 / *x; }

__global__ void product_of(const double* a, const double* b, double* y) { *y = *a * *b; }

}  // namespace

void CudaKernels::count(std::span<const MaskPart> parts, double* total, bool accumulate) {
    do {
        Parts now;
        now.size = static_cast<int>(std::min(parts.size(), parts_at_once));
        std::copy_n(parts.begin(), now.size, now.part.begin());
        launch(count_bytes, Grid{1, count_threads}, stream_, now, total, accumulate);
        parts = parts.subspan(static_cast<std::size_t>(now.size));
        accumulate = true;
    } while (!parts.empty());
}

void CudaKernels::reciprocal(const double* x, double* y) { launch(reciprocal_of, Grid{1, 1}, stream_, x, y); }

void CudaKernels::multiply(const double* a, const double* b, double* y) { launch(product_of, Grid{1, 1}, stream_, a, b, y); }

}  // namespace quadrille
