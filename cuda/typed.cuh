// Elements of a type that is only known when the kernel runs, and four of them at once. All threads of a launch take the same branch: kernels that
// wait for memory anyway have this choice inside instead of an instantiation for every pair of types. For cuda/ only.
#pragma once
#include "cuda/launch.cuh"
#include "kernels/arithmetic.hpp"

#include <cstdint>

namespace quadrille::cuda {

__device__ __forceinline__ float load_as(const void* p, DType t, std::int64_t i) {
    switch (t) {
        case DType::bf16: return load(static_cast<const bf16*>(p)[i]);
        case DType::f16: return load(static_cast<const f16*>(p)[i]);
        default: return static_cast<const float*>(p)[i];
    }
}

__device__ __forceinline__ void store_as(void* p, DType t, std::int64_t i, float x) {
    switch (t) {
        case DType::bf16: return store(static_cast<bf16*>(p)[i], x);
        case DType::f16: return store(static_cast<f16*>(p)[i], x);
        default: return store(static_cast<float*>(p)[i], x);
    }
}

// Four elements in memory, one access.
template <class T>
struct alignas(4 * sizeof(T)) Four {
    T x[4];
};

template <class T>
__device__ __forceinline__ void load_four(const void* p, std::int64_t i, float (&x)[4]) {
    const auto from = *reinterpret_cast<const Four<T>*>(static_cast<const T*>(p) + i);
    for (int k = 0; k < 4; ++k) x[k] = load(from.x[k]);
}
template <class T>
__device__ __forceinline__ void store_four(void* p, std::int64_t i, const float (&x)[4]) {
    Four<T> to;
    for (int k = 0; k < 4; ++k) store(to.x[k], x[k]);
    *reinterpret_cast<Four<T>*>(static_cast<T*>(p) + i) = to;
}

// Elements i to i + 3, the first of them at a multiple of four elements' bytes.
__device__ __forceinline__ void load_four_as(const void* p, DType t, std::int64_t i, float (&x)[4]) {
    switch (t) {
        case DType::bf16: return load_four<bf16>(p, i, x);
        case DType::f16: return load_four<f16>(p, i, x);
        default: return load_four<float>(p, i, x);
    }
}
__device__ __forceinline__ void store_four_as(void* p, DType t, std::int64_t i, const float (&x)[4]) {
    switch (t) {
        case DType::bf16: return store_four<bf16>(p, i, x);
        case DType::f16: return store_four<f16>(p, i, x);
        default: return store_four<float>(p, i, x);
    }
}

// How many elements p lies behind a place where four of them are one access.
inline int behind_four(const void* p, DType t) {
    return static_cast<int>(reinterpret_cast<std::uintptr_t>(p) / static_cast<std::uintptr_t>(bytes_of(t)) % 4);
}

}  // namespace quadrille::cuda
