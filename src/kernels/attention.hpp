// What one call of attention is about: one rank's local blocks, and the global positions and ids from which masks and dropout follow. Knows nothing
// of rings, re-cuts or the grid.
//
// Letters: b batch, s queries, t keys, n query heads, g key-value heads, d head size. All arrays are row-major and dense.
// Source: Dao 2023 (FlashAttention-2), algorithms 1 and 2.
#pragma once
#include "ir/dtype.hpp"
#include <algorithm>
#include <cstdint>
#include <span>

namespace quadrille {

struct AttentionShape {
    std::int64_t b, s, t, n, g, d;
};

// Dropout of the probabilities, after the softmax; what is kept grows by 1/(1-rate). The random element of a probability is
// ((sample·heads + head)·seq + query position)·seq + key position, in global numbers and modulo 2^64: the
// same mask on every grid.
struct AttentionDropout {
    float rate = 0;                        // 0: none, and the rest is not read
    std::uint64_t key = 0;                 // of random.hpp
    const std::int64_t* sample = nullptr;  // [b] global sequence
    const std::int64_t* head = nullptr;    // [n] global query head
    std::int64_t heads = 0, seq = 0;       // global extents
};

struct Attention {
    AttentionShape shape;
    DType type;  // of q, k, v (and of o, d_o in the backward): f32, bf16 or f16
    const void *q /*[b,s,n,d]*/, *k /*[b,t,g,d]*/, *v /*[b,t,g,d]*/;
    // Global positions. A query sees the keys whose position is at most its own. Lists may jump (zigzag: two ascending runs).
    const std::int64_t *q_position /*[s]*/, *k_position /*[t]*/;
    const std::int32_t* document_start = nullptr;  // [b,s] of the queries, or null; keys before it are not seen either
    const std::int64_t* kv_head;                   // [n] the local key-value head of each local query head
    bool in_order = false;                         // of these lists, for a device that cannot read them when it is called; false is right for any
    AttentionDropout dropout;
    void* workspace;  // attention_workspace bytes, 64-byte aligned; contents are of no account before and after
};

// Whether both position lists are the same p, p + 1, ..., and the query heads of each of `kv_heads` heads follow each other, as many for each: plain
// causal attention, which a device may have other means for than for any lists.
inline bool in_order(std::span<const std::int64_t> q_position, std::span<const std::int64_t> k_position, std::span<const std::int64_t> kv_head,
                     std::int64_t kv_heads) {
    const auto heads = static_cast<std::int64_t>(kv_head.size());
    bool ordered = heads % kv_heads == 0 && std::ranges::equal(q_position, k_position);
    for (std::size_t i = 1; i < q_position.size(); ++i) ordered = ordered && q_position[i] == q_position[i - 1] + 1;
    for (std::size_t i = 0; i < kv_head.size(); ++i) ordered = ordered && kv_head[i] == static_cast<std::int64_t>(i) * kv_heads / heads;
    return ordered;
}

}  // namespace quadrille
