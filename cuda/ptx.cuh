// The instructions that CUDA C++ has no name for, one small function each: tensor-core products, matrix loads from shared memory, asynchronous
// copies into it, the fast power of two. Nothing else in cuda/ writes PTX. All exist from sm_80 on.
//
// Under QUADRILLE_EMULATED each has a twin in plain C++ beside it: bit for bit where PTX defines the bits; the product's sums, whose order and
// rounding PTX leaves open, are made in double. The twin of a copy does its work only where the thread waits for it, so that a wait left out
// shows as garbage.
#pragma once
#include "cuda/launch.cuh"
#include "ir/dtype.hpp"

#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <vector>

namespace quadrille::cuda {

#ifdef QUADRILLE_EMULATED

namespace emulated {

struct Copy {
    void* to;
    const void* from;
    int bytes;
};
struct Copies {
    std::vector<std::vector<Copy>> groups;
    std::vector<Copy> open;
};
inline Copies& copies() {
    static Copies of_thread[1024];
    return of_thread[emulator::running->linear];
}

// A lane's part of a product, or of matrices that are loaded.
struct Product {
    float c[4];
    std::uint32_t a[4], b[2];
};
struct Matrices {
    const void* row;
    std::uint32_t r[4];
};

template <HalfWidth T>
double half(std::uint32_t two, int which) {
    T x;
    x.bits = static_cast<std::uint16_t>(two >> 16 * which);
    return static_cast<double>(static_cast<float>(x));
}

// The product of a whole warp.
template <HalfWidth T>
void multiply(Product* const (&lanes)[32]) {
    double a[16][16], b[16][8];
    for (int lane = 0; lane < 32; ++lane) {
        const int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 8; ++i) a[g + i / 2 % 2 * 8][2 * t + i / 4 * 8 + i % 2] = half<T>(lanes[lane]->a[i / 2], i % 2);
        for (int i = 0; i < 4; ++i) b[2 * t + i / 2 * 8 + i % 2][g] = half<T>(lanes[lane]->b[i / 2], i % 2);
    }
    for (int lane = 0; lane < 32; ++lane) {
        for (int i = 0; i < 4; ++i) {
            const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
            double sum = static_cast<double>(lanes[lane]->c[i]);
            for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][column];
            lanes[lane]->c[i] = static_cast<float>(sum);
        }
    }
}

constexpr unsigned whole_warp = 0xFFFFFFFFu;

}  // namespace emulated

#endif

// ---- 16-bit pairs

// Two values as elements of T, each rounded to nearest even; the first in the low half.
template <HalfWidth T>
__device__ __forceinline__ std::uint32_t pair(float low, float high) {
#ifdef QUADRILLE_EMULATED
    return T(low).bits | static_cast<std::uint32_t>(T(high).bits) << 16;
#else
    std::uint32_t packed;
    if constexpr (std::same_as<T, bf16>)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
#endif
}

// The two elements of such a pair.
template <HalfWidth T>
__device__ __forceinline__ void halves(std::uint32_t packed, float& low, float& high) {
    if constexpr (std::same_as<T, bf16>) {
        low = std::bit_cast<float>(packed << 16);
        high = std::bit_cast<float>(packed & 0xFFFF0000u);
    } else {
#ifdef QUADRILLE_EMULATED
        low = f16::widen<float>(packed & 0xFFFFu);
        high = f16::widen<float>(packed >> 16);
#else
        asm("{ .reg .f16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high; }" : "=f"(low), "=f"(high) : "r"(packed));
#endif
    }
}

// ---- tensor cores

// c[16,8] += a[16,16] b[16,8] by a warp, sums in fp32. Lane l = 4 g + t holds, of c, rows g and g + 8, columns 2t and 2t + 1; of a, the same rows,
// columns 2t, 2t + 1 and those plus 8; of b, rows 2t, 2t + 1 and those plus 8 of column g.
template <HalfWidth T>
__device__ __forceinline__ void mma(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b_low, std::uint32_t b_high) {
#ifdef QUADRILLE_EMULATED
    const emulated::Product mine{{c[0], c[1], c[2], c[3]}, {a[0], a[1], a[2], a[3]}, {b_low, b_high}};
    const auto multiply = [](unsigned, emulated::Product* const(&lanes)[32]) { emulated::multiply<T>(lanes); };
    const emulated::Product done = emulator::warp_call(emulated::whole_warp, mine, multiply, Location::current());
    for (int i = 0; i < 4; ++i) c[i] = done.c[i];
#else
    if constexpr (std::same_as<T, bf16>)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_low), "r"(b_high));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_low), "r"(b_high));
#endif
}

// Four 8x8 matrices of 16-bit elements from shared memory. Lane l gives the address of row l % 8 of matrix l / 8, 16-byte aligned; lane 4 g + t gets
// elements 2t and 2t + 1 of row g of each matrix.
__device__ __forceinline__ void load_matrices(std::uint32_t (&r)[4], const void* row) {
#ifdef QUADRILLE_EMULATED
    const auto take = [](unsigned, emulated::Matrices* const(&lanes)[32]) {
        for (int lane = 0; lane < 32; ++lane)
            for (int i = 0; i < 4; ++i)
                std::memcpy(&lanes[lane]->r[i], static_cast<const std::byte*>(lanes[8 * i + lane / 4]->row) + lane % 4 * 4, 4);
    };
    const emulated::Matrices done = emulator::warp_call(emulated::whole_warp, emulated::Matrices{row, {}}, take, Location::current());
    for (int i = 0; i < 4; ++i) r[i] = done.r[i];
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(row)))
                 : "memory");
#endif
}

// The same, each matrix transposed: lane 4 g + t gets elements g of rows 2t and 2t + 1.
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&r)[4], const void* row) {
#ifdef QUADRILLE_EMULATED
    const auto take = [](unsigned, emulated::Matrices* const(&lanes)[32]) {
        for (int lane = 0; lane < 32; ++lane) {
            for (int i = 0; i < 8; ++i) {
                const void* const from = lanes[8 * (i / 2) + lane % 4 * 2 + i % 2]->row;
                std::uint16_t x;
                std::memcpy(&x, static_cast<const std::byte*>(from) + lane / 4 * 2, 2);
                lanes[lane]->r[i / 2] |= std::uint32_t{x} << i % 2 * 16;
            }
        }
    };
    const emulated::Matrices done = emulator::warp_call(emulated::whole_warp, emulated::Matrices{row, {}}, take, Location::current());
    for (int i = 0; i < 4; ++i) r[i] = done.r[i];
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(row)))
                 : "memory");
#endif
}

// ---- asynchronous copies

// Starts a copy of 16 bytes from global to shared memory, both 16-byte aligned; of zeros if not `exists` (`from` is then not read, but must be a
// valid address).
__device__ __forceinline__ void copy_16(void* to, const void* from, bool exists) {
#ifdef QUADRILLE_EMULATED
    emulated::copies().open.push_back({to, from, exists ? 16 : 0});
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(to))), "l"(from),
                 "r"(exists ? 16 : 0)
                 : "memory");
#endif
}

// Makes a group of the copies that this thread started since the last one.
__device__ __forceinline__ void close_copies() {
#ifdef QUADRILLE_EMULATED
    emulated::Copies& mine = emulated::copies();
    mine.groups.push_back(std::move(mine.open));
    mine.open.clear();
#else
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until all but the last `left` groups of this thread have been copied.
template <int left>
__device__ __forceinline__ void wait_for_copies() {
#ifdef QUADRILLE_EMULATED
    emulated::Copies& mine = emulated::copies();
    while (mine.groups.size() > left) {
        for (const emulated::Copy& c : mine.groups.front()) {
            std::memset(c.to, 0, 16);
            std::memcpy(c.to, c.from, static_cast<std::size_t>(c.bytes));
        }
        mine.groups.erase(mine.groups.begin());
    }
#else
    asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
#endif
}

// ---- approximations

// 2^x with a relative error of at most 2^-22; subnormal results are 0.
__device__ __forceinline__ float exp2_fast(float x) {
#ifdef QUADRILLE_EMULATED
    const float y = std::exp2(x);
    return y < 0x1p-126f ? 0.0f : y;
#else
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

}  // namespace quadrille::cuda
