// Gradients packed for the wire, and sums of packets (ir/packing.hpp has the methods and their layout). Elementwise or block by block. A
// gradient that is not finite stays so: NaN and infinity are among what is sent, and where a method cannot write them all of their block becomes NaN.
#pragma once
#include "ir/dtype.hpp"
#include "ir/packing.hpp"

#include <cstddef>
#include <cstdint>

namespace quadrille {

// x = gradient + scale residual, of `slices` slices of `count` elements each, whole blocks of packing_block; a packet of packet_bytes is made of
// each, one behind the other. `unsent`, there if the residual is: (x - what the packets say) / scale; it may be the gradient's own place, or the
// residual's.
struct Compress {
    Packing packing;
    std::int64_t slices = 1, count = 0;
    const void* gradient = nullptr;
    DType type = DType::f32;              // of the gradient: f32, bf16 or f16
    const float* residual = nullptr;      // may be null
    float* unsent = nullptr;
    float scale = 1;                      // a power of two
    std::uint64_t key = 0;                // qsgd: of the random numbers; element i draws number i
};

}  // namespace quadrille
