// Elementwise kernels.
#include "cuda/kernels.hpp"
#include "cuda/launch.cuh"

namespace quadrille {

void CudaKernels::zero(void* dst, std::int64_t bytes) {
    if (bytes > 0) cuda_check(cudaMemsetAsync(dst, 0, static_cast<std::size_t>(bytes), stream_), "zeroing a buffer");
}

}  // namespace quadrille
