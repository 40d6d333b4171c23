// The language of kernels as a C++ compiler reads it, in the place of NVIDIA's header of this name: each word means what it means in CUDA, for a
// thread that is a fiber (emulator/block.hpp). What is not here, kernels may not use; device-only instructions come with their emulated twins from
// cuda/ptx.cuh.
#pragma once
#include "cuda_runtime_api.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>
#include <tuple>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __constant__ static const
// Blocks run one after another: one copy serves all. Templates' statics stay out of the section, which g++ does not give them.
#define __shared__ static __attribute__((section("emulated_shared")))

#define threadIdx (::quadrille::emulator::running->index)
#define blockIdx (::quadrille::emulator::running->block)
#define blockDim (::quadrille::emulator::running->threads)
#define gridDim (::quadrille::emulator::running->blocks)
constexpr int warpSize = 32;

#define QUADRILLE_EMULATED_VECTORS(T, name)                                                     \
    struct alignas(2 * sizeof(T)) name##2 { T x, y; };                                          \
    struct name##3 { T x, y, z; };                                                              \
    struct alignas(4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16) name##4 { T x, y, z, w; };          \
    constexpr name##2 make_##name##2(T x, T y) { return {x, y}; }                               \
    constexpr name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                       \
    constexpr name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
QUADRILLE_EMULATED_VECTORS(float, float)
QUADRILLE_EMULATED_VECTORS(int, int)
QUADRILLE_EMULATED_VECTORS(unsigned short, ushort)
#undef QUADRILLE_EMULATED_VECTORS
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(16) double2 { double x, y; };
constexpr uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
constexpr uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }
constexpr uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
constexpr double2 make_double2(double x, double y) { return {x, y}; }

// ---- the block and its warps
inline void __syncthreads(quadrille::Location at = quadrille::Location::current()) { quadrille::emulator::barrier(at); }
inline void __threadfence() {}
inline void __threadfence_block() {}

namespace quadrille::emulator {

template <class T>
concept Shuffled = std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8);

template <class T>
struct Shuffle {
    T value;
    int by, width;
    T result;
};

// `source(lane, by, first, width)` is the lane that a lane reads, in the segment of `width` lanes from `first` on; one beyond the segment: its own.
template <class T, class Source>
T shuffle(unsigned mask, T value, int by, int width, Source, Location at) {
    static_assert(std::is_empty_v<Source>);
    return warp_call(
               mask, Shuffle<T>{value, by, width, {}},
               [](unsigned of, Shuffle<T>* const(&lanes)[32]) {
                   for (int lane = 0; lane < 32; ++lane) {
                       if ((of >> lane & 1u) == 0) continue;
                       Shuffle<T>& mine = *lanes[lane];
                       const int first = lane / mine.width * mine.width, source = Source{}(lane, mine.by, first, mine.width);
                       const int from = source < first || source >= first + mine.width ? lane : source;
                       if (!lanes[from]) throw Fault("a shuffle reads from lane " + std::to_string(from) + ", which takes no part");
                       mine.result = lanes[from]->value;
                   }
               },
               at)
        .result;
}

// The lanes whose predicate holds, as a mask.
inline unsigned ballot(unsigned mask, bool predicate, Location at) {
    return warp_call(
        mask, unsigned{predicate},
        [](unsigned of, unsigned* const(&lanes)[32]) {
            unsigned votes = 0;
            for (int lane = 0; lane < 32; ++lane)
                if ((of >> lane & 1u) != 0) votes |= *lanes[lane] << lane;
            for (int lane = 0; lane < 32; ++lane)
                if ((of >> lane & 1u) != 0) *lanes[lane] = votes;
        },
        at);
}

}  // namespace quadrille::emulator

template <quadrille::emulator::Shuffled T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, quadrille::Location at = quadrille::Location::current()) {
    return quadrille::emulator::shuffle(mask, value, source, width, [](int, int s, int first, int w) { return first + (s & (w - 1)); }, at);
}
template <quadrille::emulator::Shuffled T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, quadrille::Location at = quadrille::Location::current()) {
    return quadrille::emulator::shuffle(mask, value, static_cast<int>(by), width, [](int lane, int b, int, int) { return lane - b; }, at);
}
template <quadrille::emulator::Shuffled T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, quadrille::Location at = quadrille::Location::current()) {
    return quadrille::emulator::shuffle(mask, value, static_cast<int>(by), width, [](int lane, int b, int, int) { return lane + b; }, at);
}
template <quadrille::emulator::Shuffled T>
T __shfl_xor_sync(unsigned mask, T value, int by, int width = 32, quadrille::Location at = quadrille::Location::current()) {
    return quadrille::emulator::shuffle(mask, value, by, width, [](int lane, int b, int, int) { return lane ^ b; }, at);
}
inline unsigned __ballot_sync(unsigned mask, bool predicate, quadrille::Location at = quadrille::Location::current()) {
    return quadrille::emulator::ballot(mask, predicate, at);
}
inline bool __any_sync(unsigned mask, bool predicate, quadrille::Location at = quadrille::Location::current()) {
    return quadrille::emulator::ballot(mask, predicate, at) != 0;
}
inline bool __all_sync(unsigned mask, bool predicate, quadrille::Location at = quadrille::Location::current()) {
    return quadrille::emulator::ballot(mask, predicate, at) == mask;
}
inline void __syncwarp(unsigned mask = 0xffffffffu, quadrille::Location at = quadrille::Location::current()) {
    quadrille::emulator::ballot(mask, true, at);
}

// ---- atomics, on integers alone: sums of floats would depend on the order
template <std::integral T>
T atomicAdd(T* to, std::type_identity_t<T> by) { return std::exchange(*to, *to + by); }
template <std::integral T>
T atomicMax(T* to, std::type_identity_t<T> other) { return std::exchange(*to, std::max(*to, other)); }
template <std::integral T>
T atomicMin(T* to, std::type_identity_t<T> other) { return std::exchange(*to, std::min(*to, other)); }
template <std::integral T>
T atomicOr(T* to, std::type_identity_t<T> bits) { return std::exchange(*to, *to | bits); }

// ---- numbers
template <class T>
T __ldg(const T* p) { return *p; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline void sincospi(double x, double* sine, double* cosine) {
    const double rest = x - 2.0 * std::nearbyint(x / 2.0);  // exact
    *sine = std::sin(rest * std::numbers::pi), *cosine = std::cos(rest * std::numbers::pi);
}
constexpr unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
constexpr float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
constexpr int __float_as_int(float x) { return std::bit_cast<int>(x); }
constexpr float __int_as_float(int x) { return std::bit_cast<float>(x); }
constexpr int __popc(unsigned x) { return std::popcount(x); }
constexpr int __popcll(unsigned long long x) { return std::popcount(x); }
constexpr int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
constexpr int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
constexpr int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...), Arguments&&... arguments) {
    std::tuple<Parameters...> held(std::forward<Arguments>(arguments)...);
    return quadrille::emulator::launch(*config, reinterpret_cast<const void*>(kernel), [=] { std::apply(kernel, held); });
}
