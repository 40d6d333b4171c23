// Packets of bf16, fp16 and qsgd: a block of threads for each block of 1024 elements, eight elements a thread, each read once and everything said of
// it written once. topk: a block of threads for each block of 65536 elements, which passes over it five times; all but the first find it in the L2
// cache. The arithmetic is the CPU's (kernels/packet_arithmetic.hpp), and so are the bits.
#include "cuda/packets.cuh"

#include "base/rounding.hpp"
#include "cuda/kernels.hpp"
#include "cuda/reduce.cuh"

namespace quadrille {
namespace {

using namespace cuda;

constexpr int thread_elements = 8;
constexpr unsigned block_threads = packing_block / thread_elements;
constexpr unsigned retain_threads = 256;

// Two 16-bit elements in memory, one access.
template <HalfWidth T>
struct alignas(4) Two {
    T x[2];
};
template <HalfWidth T>
__device__ __forceinline__ Two<T>& two_at(std::byte* block, int i) {
    return reinterpret_cast<Two<T>*>(block)[(threadIdx.x * thread_elements + static_cast<unsigned>(i)) / 2];
}
template <HalfWidth T>
__device__ __forceinline__ const Two<T>& two_at(const std::byte* block, int i) {
    return two_at<T>(const_cast<std::byte*>(block), i);
}

// ---- eight elements of one thread: what the packet says of x, which becomes what it does not

__device__ __forceinline__ void pack_bf16(float (&x)[thread_elements], std::byte* to) {
    for (int i = 0; i < thread_elements; i += 2) {
        const Two<bf16> y{bf16(x[i]), bf16(x[i + 1])};
        two_at<bf16>(to, i) = y;
        for (int k = 0; k < 2; ++k) x[i + k] -= static_cast<float>(y.x[k]);
    }
}

__device__ __forceinline__ void pack_fp16(float (&x)[thread_elements], std::uint32_t most, std::byte* to) {
    const float factor = fp16_factor(most), back = 1.0f / factor;
    if (threadIdx.x == 0) *reinterpret_cast<float*>(to) = factor;
    for (int i = 0; i < thread_elements; i += 2) {
        const Two<f16> y{f16(x[i] * factor), f16(x[i + 1] * factor)};
        two_at<f16>(to + 4, i) = y;
        for (int k = 0; k < 2; ++k) x[i + k] -= static_cast<float>(y.x[k]) * back;
    }
}

// Eight elements are as many bytes as one is bits.
__device__ __forceinline__ void pack_qsgd(float (&x)[thread_elements], std::uint32_t most, int bits, std::uint64_t key, std::int64_t first,
                                          std::byte* to) {
    const QsgdSteps steps(most, bits);
    if (threadIdx.x == 0) *reinterpret_cast<float*>(to) = steps.step;
    std::uint64_t word = 0;
    for (int i = 0; i < thread_elements; ++i) {
        const float y = steps.of(x[i], random_bits(key, static_cast<std::uint64_t>(first + i)));
        word |= static_cast<std::uint64_t>(static_cast<std::uint8_t>(y + steps.levels)) << (i * bits);
        x[i] -= y * steps.step;
    }
    to += 4 + threadIdx.x * static_cast<unsigned>(bits);
    for (int k = 0; k < bits; ++k) to[k] = static_cast<std::byte>(word >> (8 * k));
}

// x = gradient + scale residual, four at a time where the arrays' addresses allow it.
__device__ __forceinline__ void load_elements(const Compress& c, std::int64_t first, bool fours, float (&x)[thread_elements]) {
    for (int i = 0; i < thread_elements; i += 4) {
        float g[4], r[4] = {};
        if (fours) load_four_as(c.gradient, c.type, first + i, g);
        else
            for (int k = 0; k < 4; ++k) g[k] = load_as(c.gradient, c.type, first + i + k);
        if (c.residual && fours) load_four<float>(c.residual, first + i, r);
        else if (c.residual)
            for (int k = 0; k < 4; ++k) r[k] = c.residual[first + i + k];
        for (int k = 0; k < 4; ++k) x[i + k] = c.residual ? g[k] + c.scale * r[k] : g[k];
    }
}

__device__ __forceinline__ void store_elements(void* to, DType t, std::int64_t first, bool fours, const float (&x)[thread_elements]) {
    for (int i = 0; i < thread_elements; i += 4) {
        const float y[4] = {x[i], x[i + 1], x[i + 2], x[i + 3]};
        if (fours) store_four_as(to, t, first + i, y);
        else
            for (int k = 0; k < 4; ++k) store_as(to, t, first + i + k, y[k]);
    }
}

__global__ void __launch_bounds__(block_threads) pack_blocks(const Compress c, std::byte* packets, const PacketSizes sizes, bool fours) {
    __shared__ std::uint32_t warps[most_warps];
    const std::int64_t slice = blockIdx.x / sizes.blocks, block = blockIdx.x % sizes.blocks;
    const std::int64_t first = slice * c.count + block * packing_block + threadIdx.x * thread_elements;
    std::byte* const to = packets + slice * sizes.packet + block * sizes.block;
    float x[thread_elements];
    load_elements(c, first, fours, x);
    std::uint32_t most = 0;
    for (int i = 0; i < thread_elements; ++i) most = Largest{}(most, magnitude(x[i]));
    if (c.packing.method != PackingMethod::bf16) most = block_reduce(most, 0u, warps, Largest{});
    switch (c.packing.method) {
        case PackingMethod::fp16: pack_fp16(x, most, to); break;
        case PackingMethod::qsgd: pack_qsgd(x, most, c.packing.bits, c.key, first, to); break;
        default: pack_bf16(x, to);
    }
    if (!c.unsent) return;
    for (int i = 0; i < thread_elements; ++i) x[i] *= 1.0f / c.scale;
    store_elements(c.unsent, DType::f32, first, fours, x);
}

// ---- the same eight elements of a packet, added to `sum`

__device__ __forceinline__ void add_bf16(const std::byte* from, float (&sum)[thread_elements]) {
    for (int i = 0; i < thread_elements; i += 2) {
        const Two<bf16> y = two_at<bf16>(from, i);
        for (int k = 0; k < 2; ++k) sum[i + k] += static_cast<float>(y.x[k]);
    }
}

__device__ __forceinline__ void add_fp16(const std::byte* from, float (&sum)[thread_elements]) {
    const float back = 1.0f / *reinterpret_cast<const float*>(from);
    for (int i = 0; i < thread_elements; i += 2) {
        const Two<f16> y = two_at<f16>(from + 4, i);
        for (int k = 0; k < 2; ++k) sum[i + k] += static_cast<float>(y.x[k]) * back;
    }
}

__device__ __forceinline__ void add_qsgd(const std::byte* from, int bits, float (&sum)[thread_elements]) {
    const float step = *reinterpret_cast<const float*>(from), levels = qsgd_levels(bits);
    const std::uint64_t mask = (1u << bits) - 1;
    from += 4 + threadIdx.x * static_cast<unsigned>(bits);
    std::uint64_t word = 0;
    for (int k = 0; k < bits; ++k) word |= static_cast<std::uint64_t>(from[k]) << (8 * k);
    for (int i = 0; i < thread_elements; ++i) sum[i] += (static_cast<float>(word >> (i * bits) & mask) - levels) * step;
}

__global__ void __launch_bounds__(block_threads) add_blocks(const Packing p, const std::byte* packets, std::int64_t n, const PacketSizes sizes,
                                                            void* to, DType type, bool fours) {
    float sum[thread_elements] = {};
    for (std::int64_t k = 0; k < n; ++k) {
        const std::byte* const from = packets + k * sizes.packet + blockIdx.x * sizes.block;
        switch (p.method) {
            case PackingMethod::fp16: add_fp16(from, sum); break;
            case PackingMethod::qsgd: add_qsgd(from, p.bits, sum); break;
            default: add_bf16(from, sum);
        }
    }
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * packing_block + threadIdx.x * thread_elements;
    store_elements(to, type, first, fours, sum);
}

__global__ void __launch_bounds__(retain_threads) keep_residual(float* residual, const float* unsent, std::int64_t count, const double* norm2) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * retain_threads + threadIdx.x;
    if (i < count && update_made(*norm2)) residual[i] = unsent[i];
}

}  // namespace

void CudaKernels::compress(const Compress& c, std::byte* packets) {
    require(c.packing.method != PackingMethod::none, "cuda: packets of no method");
    require(c.count % packing_block == 0, "cuda: a packet is of whole blocks");
    require(reinterpret_cast<std::uintptr_t>(packets) % 4 == 0, "cuda: packets begin at multiples of 4 bytes");
    if (c.packing.method == PackingMethod::topk) return compress_topk(c, packets, stream_);
    const PacketSizes sizes(c.packing, c.count);
    const bool fours = behind_four(c.gradient, c.type) == 0 && behind_four(c.residual, DType::f32) == 0 && behind_four(c.unsent, DType::f32) == 0;
    launch(pack_blocks, Grid{static_cast<unsigned>(c.slices * sizes.blocks), block_threads}, stream_, c, packets, sizes, fours);
}

void CudaKernels::decompress(const Packing& p, const std::byte* packets, std::int64_t n, void* sum, DType type, std::int64_t count) {
    require(p.method != PackingMethod::none, "cuda: packets of no method");
    if (p.method == PackingMethod::topk) return decompress_topk(p, packets, n, sum, type, count, stream_);
    const PacketSizes sizes(p, count);
    launch(add_blocks, Grid{static_cast<unsigned>(sizes.blocks), block_threads}, stream_, p, packets, n, sizes, sum, type,
           behind_four(sum, type) == 0);
}

void CudaKernels::retain(float* residual, const float* unsent, std::int64_t count, const double* norm2, double* squares, void* workspace) {
    launch(keep_residual, Grid{static_cast<unsigned>(ceil_div(count, retain_threads)), retain_threads}, stream_, residual, unsent, count, norm2);
    const Extent all{0, count};
    sum_squares(residual, DType::f32, {&all, 1}, squares, workspace);
}

}  // namespace quadrille
