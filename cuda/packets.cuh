// What the packets' kernels share: where packets lie, and the element that is packed. packets.cu has the methods that work element by element,
// topk.cu the one that chooses. For cuda/ only.
#pragma once
#include "base/random.hpp"
#include "cuda/launch.cuh"
#include "cuda/typed.cuh"
#include "kernels/packet_arithmetic.hpp"
#include "kernels/packets.hpp"
#include "kernels/updates.hpp"

namespace quadrille::cuda {

// What a method packs together, how much of that a packet has, and the bytes of one and of all of it.
struct PacketSizes {
    std::int64_t grain, blocks, block, packet;
    PacketSizes(const Packing& p, std::int64_t count)
        : grain(p.method == PackingMethod::topk ? topk_block : packing_block), blocks((count + grain - 1) / grain), block(packet_bytes(p, grain)),
          packet(packet_bytes(p, count)) {}
};

// x = gradient + scale residual.
__device__ __forceinline__ float element_to_pack(const Compress& c, std::int64_t i) {
    const float g = load_as(c.gradient, c.type, i);
    return c.residual ? g + c.scale * c.residual[i] : g;
}

void compress_topk(const Compress& c, std::byte* packets, cudaStream_t stream);
void decompress_topk(const Packing& p, const std::byte* packets, std::int64_t n, void* sum, DType type, std::int64_t count, cudaStream_t stream);

}  // namespace quadrille::cuda
