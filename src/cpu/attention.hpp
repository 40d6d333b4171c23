// Scaled dot-product attention on one rank's local blocks, forward and backward. Owns the tiling, the masks and the exact
// merging of partial results; a score exists only in a tile of one thread. Knows nothing of rings, re-cuts or the grid:
// masks and dropout follow from the global positions and ids that are passed in.
//
// Letters: b batch, s queries, t keys, n query heads, g key-value heads, d head size. All arrays are row-major and dense.
// Same arguments, same bits, for any number of OpenMP threads. Source: Dao 2023 (FlashAttention-2), algorithms 1 and 2.
#pragma once
#include "ir/dtype.hpp"
#include <cstdint>

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
    AttentionDropout dropout;
    void* workspace;  // attention_workspace bytes, 64-byte aligned; contents are of no account before and after
};

// Bytes of workspace for calls made with up to `threads` OpenMP threads.
std::int64_t attention_workspace(const AttentionShape& shape, int threads, bool backward);

// o[b,s,n,d] = softmax(q kᵀ / √d) v over the keys given, and lse[b,s,n], the natural log of the softmax's denominator
// (without dropout). A query that sees no key gets o = 0 and lse = -inf.
// merge: o (o_type must be f32) and lse hold the result over other keys, and the new one is combined with it exactly.
void attention(const Attention& a, void* o, DType o_type, float* lse, bool merge);

// Gradients of q, k, v. o and lse are the final ones, over all keys of all turns; d_o[b,s,n,d] and o have the type of q.
// A kv head's gradient is the sum over its query heads. grad_type is f32 or 16-bit; accumulate (f32 only) adds to what dq
// [b,s,n,d], dk and dv [b,t,g,d] hold.
void attention_dx(const Attention& a, const void* o, const float* lse, const void* d_o, void* dq, void* dk, void* dv,
                  DType grad_type, bool accumulate);

}  // namespace quadrille
