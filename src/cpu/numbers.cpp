// Numbers of the step: one thread, as there is nothing to share.
#include "cpu/kernels.hpp"
#include <algorithm>

namespace quadrille {

void CpuKernels::count(std::span<const MaskPart> parts, double* total, bool accumulate) {
    std::int64_t counted = 0;
    for (const MaskPart& p : parts) counted += std::count_if(p.mask, p.mask + p.count, [](std::uint8_t byte) { return byte != 0; });
    *total = static_cast<double>(counted) + (accumulate ? *total : 0.0);
}

void CpuKernels::reciprocal(const double* x, double* y) { *y = *x == 0.0 ? 0.0 : 1.0 / *x; }

void CpuKernels::multiply(const double* a, const double* b, double* y) { *y = *a * *b; }

}  // namespace quadrille
