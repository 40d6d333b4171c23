#include "cuda/error.hpp"
#include "cuda/kernels.hpp"
#include "device.hpp"

namespace quadrille::test {

std::shared_ptr<Kernels> kernels_of_device() { return std::make_shared<CudaKernels>(nullptr); }
void finish_on_device() { cuda_check(cudaDeviceSynchronize(), "waiting for the device"); }

}  // namespace quadrille::test
