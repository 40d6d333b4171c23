// Sixteen bytes of elements, the widest access of a thread: kernels that move memory do so in packs where addresses allow it, and element by element
// where they do not and in the tail.
#pragma once
#include "kernels/arithmetic.hpp"

#include <cuda_runtime.h>

#include <cstdint>

namespace quadrille::cuda {

constexpr int pack_bytes = 16;
template <class T>
constexpr int pack_size = pack_bytes / static_cast<int>(sizeof(T));

template <class T>
struct alignas(pack_bytes) Pack {
    T x[pack_size<T>];
    __device__ __forceinline__ T& operator[](int i) { return x[i]; }
    __device__ __forceinline__ const T& operator[](int i) const { return x[i]; }
};

// Of addresses that are multiples of 16.
template <class T>
__device__ __forceinline__ Pack<T> load_pack(const T* from) { return *reinterpret_cast<const Pack<T>*>(from); }
template <class T>
__device__ __forceinline__ void store_pack(T* to, const Pack<T>& pack) { *reinterpret_cast<Pack<T>*>(to) = pack; }

// Whether each address, or number of bytes between rows, is a multiple of 16.
inline bool packable(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % pack_bytes == 0; }
inline bool packable(std::int64_t bytes) { return bytes % pack_bytes == 0; }
template <class... More>
bool packable(const void* p, const void* q, More... more) { return packable(p) && packable(q, more...); }

}  // namespace quadrille::cuda
