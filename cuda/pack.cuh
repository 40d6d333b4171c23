// Sixteen bytes of elements, the widest access of a thread: kernels that move memory do so in packs where addresses allow it, and element by element
// where they do not and in the tail.
#pragma once
#include "cuda/ptx.cuh"
#include "kernels/arithmetic.hpp"

#include <array>
#include <bit>
#include <cstdint>

namespace quadrille::cuda {

constexpr int pack_bytes = 16;
template <class T>
constexpr int pack_size = pack_bytes / static_cast<int>(sizeof(T));

// n elements, accessed together: 16 bytes at a time where they are so long. They lie on a multiple of 16 bytes, or of their size where that is less.
template <class T, int n>
struct alignas(n * sizeof(T) < pack_bytes ? n * sizeof(T) : pack_bytes) Chunk {
    T x[n];
    __device__ __forceinline__ T& operator[](int i) { return x[i]; }
    __device__ __forceinline__ const T& operator[](int i) const { return x[i]; }
};
template <class T>
using Pack = Chunk<T, pack_size<T>>;

template <int n, class T>
__device__ __forceinline__ Chunk<T, n> load_chunk(const T* from) { return *reinterpret_cast<const Chunk<T, n>*>(from); }
template <class T, int n>
__device__ __forceinline__ void store_chunk(T* to, const Chunk<T, n>& chunk) { *reinterpret_cast<Chunk<T, n>*>(to) = chunk; }
template <class T>
__device__ __forceinline__ Pack<T> load_pack(const T* from) { return load_chunk<pack_size<T>>(from); }
template <class T>
__device__ __forceinline__ void store_pack(T* to, const Pack<T>& pack) { store_chunk(to, pack); }

// A chunk as fp32, and fp32 rounded to nearest even, by the device's own conversions of two at a time: the same bits as everywhere, but for a NaN's.
template <int n>
struct Values {
    float x[n];
};
template <class T, int n>
__device__ __forceinline__ Values<n> values_of(const Chunk<T, n>& chunk) {
    Values<n> v;
    if constexpr (HalfWidth<T> && n % 2 == 0) {
        const auto pairs = std::bit_cast<std::array<std::uint32_t, n / 2>>(chunk);
#pragma unroll
        for (int i = 0; i < n / 2; ++i) halves<T>(pairs[i], v.x[2 * i], v.x[2 * i + 1]);
    } else {
#pragma unroll
        for (int i = 0; i < n; ++i) v.x[i] = load(chunk.x[i]);
    }
    return v;
}
template <class T, int n>
__device__ __forceinline__ Chunk<T, n> rounded(const Values<n>& v) {
    if constexpr (HalfWidth<T> && n % 2 == 0) {
        std::array<std::uint32_t, n / 2> pairs;
#pragma unroll
        for (int i = 0; i < n / 2; ++i) pairs[i] = pair<T>(v.x[2 * i], v.x[2 * i + 1]);
        return std::bit_cast<Chunk<T, n>>(pairs);
    } else {
        Chunk<T, n> chunk;
#pragma unroll
        for (int i = 0; i < n; ++i) store(chunk.x[i], v.x[i]);
        return chunk;
    }
}
template <int n, class T>
__device__ __forceinline__ Values<n> load_values(const T* from) { return values_of(load_chunk<n>(from)); }
template <class T, int n>
__device__ __forceinline__ void store_values(T* to, const Values<n>& v) { store_chunk(to, rounded<T>(v)); }

// Whether each address, or number of bytes between rows, is a multiple of 16.
inline bool packable(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % pack_bytes == 0; }
inline bool packable(std::int64_t bytes) { return bytes % pack_bytes == 0; }
template <class... More>
bool packable(const void* p, const void* q, More... more) { return packable(p) && packable(q, more...); }

}  // namespace quadrille::cuda
