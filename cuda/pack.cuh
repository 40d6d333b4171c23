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

// n elements from or to memory as fp32, in accesses of 16 bytes where they are so long: `from` and `to` are multiples of 16 bytes, or of n elements' where
// that is less. A result is rounded to nearest even; the bits of a NaN are the device's own.
template <class T, int n>
struct alignas(n * sizeof(T) < pack_bytes ? n * sizeof(T) : pack_bytes) Chunk {
    T x[n];
};
template <class T, int n>
__device__ __forceinline__ void load_values(const T* from, float (&x)[n]) {
    const auto chunk = *reinterpret_cast<const Chunk<T, n>*>(from);
    for (int i = 0; i < n; ++i) x[i] = load(chunk.x[i]);
}
template <class T, int n>
__device__ __forceinline__ void store_values(T* to, const float (&x)[n]) {
    Chunk<T, n> chunk;
    for (int i = 0; i < n; ++i) store(chunk.x[i], x[i]);
    *reinterpret_cast<Chunk<T, n>*>(to) = chunk;
}

// Whether each address, or number of bytes between rows, is a multiple of 16.
inline bool packable(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % pack_bytes == 0; }
inline bool packable(std::int64_t bytes) { return bytes % pack_bytes == 0; }
template <class... More>
bool packable(const void* p, const void* q, More... more) { return packable(p) && packable(q, more...); }

}  // namespace quadrille::cuda
