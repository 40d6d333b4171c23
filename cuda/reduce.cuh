// Reductions over a warp and over a block of whole warps. Every thread calls them and every thread gets the result; the order is fixed. For cuda/
// only.
#pragma once
#include "cuda/launch.cuh"

namespace quadrille::cuda {

constexpr unsigned all_lanes = 0xFFFFFFFFu;
constexpr int warp_threads = 32, most_warps = 32;

template <class T, class F>
__device__ __forceinline__ T warp_reduce(T x, F f) {
    for (int distance = warp_threads / 2; distance > 0; distance /= 2) x = f(x, __shfl_xor_sync(all_lanes, x, distance));
    return x;
}

// `none` is what f leaves the other as it is with; `warps` is shared memory for a value of each warp, free when this returns.
template <class T, class F>
__device__ __forceinline__ T block_reduce(T x, T none, T (&warps)[most_warps], F f) {
    const unsigned lane = threadIdx.x % warp_threads;
    x = warp_reduce(x, f);
    if (lane == 0) warps[threadIdx.x / warp_threads] = x;
    __syncthreads();
    x = warp_reduce(lane < blockDim.x / warp_threads ? warps[lane] : none, f);
    __syncthreads();
    return x;
}

struct Sum {
    template <class T>
    __device__ __forceinline__ T operator()(T a, T b) const { return a + b; }
};
// Passes over NaN.
struct Largest {
    template <class T>
    __device__ __forceinline__ T operator()(T a, T b) const { return a < b ? b : a; }
};

}  // namespace quadrille::cuda
