// The emulated GPU: memory of the heap is memory of the device.
#include "cuda/error.hpp"
#include "cuda/kernels.hpp"
#include "device.hpp"
#include "reference.hpp"

namespace quadrille::test {

std::shared_ptr<Kernels> kernels_of_device() { return std::make_shared<CudaKernels>(nullptr); }
void finish_on_device() { cuda_check(cudaDeviceSynchronize(), "waiting for the device"); }
double probability_rounding(DType type) { return type == DType::f32 ? 0 : rounding(type); }

}  // namespace quadrille::test
