// What a failed call of CUDA becomes: an Error that says what was being done, CUDA's name for the failure and its explanation. Memory that the
// device does not have ends the job with no_memory, all else with rank_failed.
#pragma once
#include "base/error.hpp"

#include <cuda_runtime_api.h>

#include <string_view>

namespace quadrille {

// Throws unless `status` is success. `what` reads as in "CUDA: copying a batch to the device: cudaErrorInvalidValue: invalid argument".
inline void cuda_check(cudaError_t status, std::string_view what) {
    if (status == cudaSuccess) [[likely]]
        return;
    cudaGetLastError();  // told here: the next call that asks for the last error asks for its own
    const Exit exit = status == cudaErrorMemoryAllocation ? Exit::no_memory : Exit::rank_failed;
    throw Error(exit, fmt::format("CUDA: {}: {}: {}", what, cudaGetErrorName(status), cudaGetErrorString(status)));
}

}  // namespace quadrille
