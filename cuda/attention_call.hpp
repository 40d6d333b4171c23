// How attention's kernels are called: what a call is made of, and one function for each kernel that picks the kernel made for the element type and
// the head size. Inner to cuda/attention*.cu.
#pragma once
#include "base/error.hpp"
#include "cuda/attention_tiles.hpp"

#include <cuda_runtime_api.h>

#include <utility>

namespace quadrille::cuda {

// What all kernels of a call are handed.
struct AttentionCall {
    Attention a;
    const KeyBounds* keys;        // [strips of t]
    const QueryBounds* queries;   // [b, strips of s]
    QueryStatistics* statistics;  // [b, n, padded s]
    bool packed;                  // all rows of all tensors begin at multiples of 16 bytes
    float scale;                  // 1/√d
};

struct AttentionGradients {
    const void *o, *d_o;
    const float* lse;
    void *dq, *dk, *dv;
    bool wide;  // they are f32
    bool accumulate;
};

void attention_forward(const AttentionCall&, void* o, DType o_type, float* lse, bool merge, cudaStream_t);
void attention_query_gradients(const AttentionCall&, const AttentionGradients&, cudaStream_t);
void attention_key_gradients(const AttentionCall&, const AttentionGradients&, cudaStream_t);

// Blocks of a kernel of which one takes `tile` of `count` neighbours of each of so many heads.
inline unsigned attention_blocks(std::int64_t heads, std::int64_t count, std::int64_t tile) {
    const std::int64_t blocks = heads * parts_of(count, tile);
    require(blocks < std::int64_t{1} << 31, "attention: a grid has at most 2^31 - 1 blocks");
    return static_cast<unsigned>(blocks);
}

// f(element, head): f is a template over the element type and an integral constant, the head size of the kernels.
template <class F>
void for_kernel(const Attention& a, F&& f) {
    const auto sized = [&](auto element) {
        switch (padded_head(a.shape.d)) {
            case 64: return f(element, std::integral_constant<int, 64>{});
            case 128: return f(element, std::integral_constant<int, 128>{});
            default: return f(element, std::integral_constant<int, 256>{});
        }
    };
    switch (a.type) {
        case DType::f32: return sized(float{});
        case DType::bf16: return sized(bf16{});
        case DType::f16: return sized(f16{});
        default: require(false, "attention is of f32, bf16 or f16");
    }
}

}  // namespace quadrille::cuda
