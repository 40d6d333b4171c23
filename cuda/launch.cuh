// How kernels are started and reach the block's dynamic shared memory. Kernels use no other part of the language that a C++ compiler lacks:
// no <<< >>>, no extern __shared__, no PTX (that is cuda/ptx.cuh's); so the emulator of tests/gpu compiles them as they are.
#pragma once
#include "cuda/error.hpp"

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace quadrille {

// Where a kernel runs: so many blocks of so many threads (at most 1024), each block with so many bytes of dynamic shared memory (at most 227 KiB on
// sm_90, 163 KiB on sm_80). `at` is filled in by itself: errors tell who launched.
struct Grid {
    dim3 blocks, threads;
    std::int64_t shared_bytes = 0;
    Location at = Location::current();
};

// Puts kernel(arguments...) on the stream. A grid of no blocks is no work. Throws Error where the device refuses the launch; what goes wrong while a
// kernel runs shows at a later call.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const Grid& grid, cudaStream_t stream, Arguments&&... arguments) {
    const dim3 blocks = grid.blocks, threads = grid.threads;
    if (blocks.x == 0 || blocks.y == 0 || blocks.z == 0) return;
    const auto check = [&](cudaError_t status) {
        if (status == cudaSuccess) [[likely]]
            return;
        const Location& at = grid.at;
        cuda_check(status, fmt::format("{} ({}:{}): a launch of {} x {} x {} blocks of {} x {} x {} threads with {} bytes of shared memory",
                                       at.function_name(), at.file_name(), at.line(), blocks.x, blocks.y, blocks.z, threads.x, threads.y, threads.z,
                                       grid.shared_bytes));
    };
    constexpr std::int64_t allowed_unasked = 48 * 1024;
    if (grid.shared_bytes > allowed_unasked)
        check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(grid.shared_bytes)));
    const cudaLaunchConfig_t config{blocks, threads, static_cast<std::size_t>(grid.shared_bytes), stream, nullptr, 0};
    check(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...));
}

// The block's dynamic shared memory, aligned to 128 bytes, uninitialised.
template <class T>
__device__ __forceinline__ T* dynamic_shared() {
#ifdef QUADRILLE_EMULATED
    return static_cast<T*>(emulator::dynamic_shared_memory());
#else
    extern __shared__ __align__(128) unsigned char dynamic_shared_memory[];
    return reinterpret_cast<T*>(dynamic_shared_memory);
#endif
}

}  // namespace quadrille
