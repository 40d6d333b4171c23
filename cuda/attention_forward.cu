// Attention forward: algorithm 1 of FlashAttention-2 (Dao 2023) for one block of queries, keys and values coming by in tiles, the next tile's copies
// under way while this one's products are made. Partial results of a ring are merged where they lie.
//
// Tensor cores: 4 s t d operations a head, of which masked tiles are left out. Memory: q and o once, k and v once per block of queries, from the
// L2 cache but for the first time. 4 warps a block. In 16 bits 128 queries (64 with heads of 256) and 54, 68 or 99 KiB of shared memory for
// heads of 64, 128 and 256: two blocks an SM, but at 99 one on sm_80. In f32 64 queries and 51, 99 or 130 KiB, the last of which is one block an SM.
#include "cuda/attention_block.cuh"

namespace quadrille::cuda {
namespace {

constexpr float ln_2 = 0.693147181f;

struct Output {
    void* o;
    bool wide;  // o is f32
    float* lse;
    bool merge;
};

// The softmax of the rows so far: their greatest raw score, and this lane's part of the sum of exp(scale (score - greatest)).
template <int m_tiles>
struct RunningRows {
    float greatest[2 * m_tiles], sum[2 * m_tiles];
};

__device__ __forceinline__ float row_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 2));
}
__device__ __forceinline__ float row_sum(float x) {
    x += __shfl_xor_sync(0xFFFFFFFFu, x, 1);
    return x + __shfl_xor_sync(0xFFFFFFFFu, x, 2);
}

// scores: raw in, exp(scale (score - greatest)) out; greatest, sum and o are brought to the new maximum. A row that has seen no key keeps
// greatest = -inf, sum = 0.
template <int m_tiles, int n_tiles, int o_tiles>
__device__ __forceinline__ void softmax(Sums<m_tiles, n_tiles>& scores, RunningRows<m_tiles>& rows, Sums<m_tiles, o_tiles>& o, float scale_2) {
#pragma unroll
    for (int r = 0; r < 2 * m_tiles; ++r) {
        const int m = r / 2, h = r % 2 * 2;
        float greatest = rows.greatest[r];
#pragma unroll
        for (int n = 0; n < n_tiles; ++n) greatest = fmaxf(greatest, fmaxf(scores[m][n][h], scores[m][n][h + 1]));
        greatest = row_max(greatest);
        const float origin = greatest == minus_infinity ? 0.0f : greatest * scale_2;
        const float shrink = exp2_fast(rows.greatest[r] * scale_2 - origin);
        float sum = 0;
#pragma unroll
        for (int n = 0; n < n_tiles; ++n) {
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const float p = exp2_fast(fmaf(scores[m][n][h + e], scale_2, -origin));
                scores[m][n][h + e] = p;
                sum += p;
            }
        }
        rows.greatest[r] = greatest;
        rows.sum[r] = fmaf(rows.sum[r], shrink, sum);
#pragma unroll
        for (int n = 0; n < o_tiles; ++n) o[m][n][h] *= shrink, o[m][n][h + 1] *= shrink;
    }
}

template <int m_tiles, int n_tiles>
__device__ __forceinline__ void drop(Sums<m_tiles, n_tiles>& p, const Drops<m_tiles, n_tiles>& drops) {
#pragma unroll
    for (int m = 0; m < m_tiles; ++m)
#pragma unroll
        for (int n = 0; n < n_tiles; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) p[m][n][i] *= drops.factor(m, n, i);
}

// Divides by the softmax's denominator, combines with what o and lse hold if `merge`, and writes both. `i` is the query of the warp's row 0.
template <class T, int m_tiles, int o_tiles>
__device__ __forceinline__ void finish(const AttentionCall& call, const Output& out, int b, int n, int i,
                                       RunningRows<m_tiles>& rows, Sums<m_tiles, o_tiles>& o) {
    const AttentionShape& shape = call.a.shape;
    const Lane lane;
#pragma unroll
    for (int r = 0; r < 2 * m_tiles; ++r) {
        const int m = r / 2, h = r % 2;
        const int query = i + 16 * m + 8 * h + lane.g;
        const bool exists = query < shape.s;
        const float sum = row_sum(rows.sum[r]);
        float* const lse = out.lse + row_at(shape.s, shape.n, 1, b, exists ? query : 0, n);
        const float before = out.merge && exists ? *lse : minus_infinity;
        const float here = sum == 0.0f ? minus_infinity : ln_2 * (rows.greatest[r] * call.scale * log2_e + log2f(sum));
        const float origin = fmaxf(before, here);
        const float now = before == minus_infinity ? here : origin + logf(expf(before - origin) + expf(here - origin));
        const float weight = sum == 0.0f ? 0.0f : expf(here - now) / sum, weight_before = before == minus_infinity ? 0.0f : expf(before - now);
        __syncwarp();  // the row's four lanes have read lse
        if (exists && lane.t == 0) *lse = now;
        if (!exists) continue;
        const std::int64_t at = row_at(shape.s, shape.n, shape.d, b, query, n);
#pragma unroll
        for (int c = 0; c < o_tiles; ++c) {
            const int channel = 8 * c + 2 * lane.t;
            if (channel >= shape.d) continue;
            const bool two = channel + 1 < shape.d;
            float x_0 = o[m][c][2 * h] * weight, x_1 = o[m][c][2 * h + 1] * weight;
            if (out.wide) {
                float* const y = static_cast<float*>(out.o) + at + channel;
                if (before != minus_infinity) x_0 = fmaf(weight_before, y[0], x_0), x_1 = two ? fmaf(weight_before, y[1], x_1) : 0.0f;
                store_two(y, x_0, x_1, two, call.packed);
            } else {
                store_two(static_cast<T*>(out.o) + at + channel, x_0, x_1, two, call.packed);
            }
        }
    }
}

template <class T, int head>
__global__ void __launch_bounds__(forward_tiling(sizeof(T), head).threads(), 1) forward(const AttentionCall call, const Output out) {
    constexpr Tiling tiling = forward_tiling(sizeof(T), head);
    constexpr int m_tiles = tiling.m_tiles, n_tiles = tiling.columns / 8, row = row_elements(sizeof(T), head);
    const auto [batch, s, t, heads, kv_heads, d] = call.a.shape;
    const int channels = static_cast<int>(d);
    // The last queries see the most keys: longest blocks first.
    const int tiles = static_cast<int>(parts_of(s, tiling.rows())), head_of_all = static_cast<int>(blockIdx.x) / tiles;
    const int tile = tiles - 1 - static_cast<int>(blockIdx.x) % tiles, b = head_of_all / static_cast<int>(heads);
    const int n = head_of_all % static_cast<int>(heads);
    const int first = tile * tiling.rows();
    const int warp_row = static_cast<int>(threadIdx.x / 32) * 16 * m_tiles;

    T* const q_shared = reinterpret_cast<T*>(dynamic_shared<unsigned char>());
    T* const k_shared = q_shared + tiling.rows() * row;
    T* const v_shared = k_shared + 2 * tiling.columns * row;
    const auto load_keys = [&](int j, int buffer) {
        const int key = j * tiling.columns, count = static_cast<int>(t) - key;
        const std::int64_t at = row_at(t, kv_heads, d, b, key, call.a.kv_head[n]);
        T* const to = k_shared + buffer * tiling.columns * row;
        load_tile<T, head>(to, static_cast<const T*>(call.a.k) + at, kv_heads * d, tiling.columns, count, channels, call.packed);
        load_tile<T, head>(to + 2 * tiling.columns * row, static_cast<const T*>(call.a.v) + at, kv_heads * d, tiling.columns, count, channels,
                           call.packed);
        close_copies();
    };

    RunningRows<m_tiles> rows;
#pragma unroll
    for (int r = 0; r < 2 * m_tiles; ++r) rows.greatest[r] = minus_infinity, rows.sum[r] = 0.0f;
    Sums<m_tiles, head / 8> o;
    clear(o);
    KeyTiles<tiling.rows(), tiling.columns> walk(call, b, tile);
    Turn now = walk.next();
    load_tile<T, head>(q_shared, static_cast<const T*>(call.a.q) + row_at(s, heads, d, b, first, n), heads * d, tiling.rows(), static_cast<int>(s) - first, channels,
                       call.packed);
    if (now) load_keys(now.tile(), 0);
    for (int buffer = 0; now; buffer ^= 1) {
        wait_for_copies<0>();
        __syncthreads();  // the tile is there, and nobody reads the other buffer any more
        const Turn next = walk.next();
        if (next) load_keys(next.tile(), buffer ^ 1);
        Sums<m_tiles, n_tiles> p;
        clear(p);
        add_rows_by_rows<T, head>(p, q_shared + warp_row * row, k_shared + buffer * tiling.columns * row, channels);
        if (!now.all()) mask<false>(p, call.a, b, first + warp_row, now.tile() * tiling.columns);
        softmax(p, rows, o, call.scale * log2_e);
        if (call.a.dropout.rate > 0) {
            Drops<m_tiles, n_tiles> drops;
            drops.template draw<false>(call.a, b, n, first + warp_row, now.tile() * tiling.columns);
            drop(p, drops);
        }
        add_scores_by_rows<T, head>(o, p, v_shared + buffer * tiling.columns * row, channels);
        now = next;
    }
    close_copies();
    wait_for_copies<0>();  // of the queries, where no key is seen
    finish<T>(call, out, b, n, first + warp_row, rows, o);
}

}  // namespace

void attention_forward(const AttentionCall& call, void* o, DType o_type, float* lse, bool merge, cudaStream_t stream) {
    for_kernel(call.a, [&](auto element, auto head) {
        using T = decltype(element);
        constexpr Tiling tiling = forward_tiling(sizeof(T), head.value);
        const AttentionShape& shape = call.a.shape;
        launch(forward<T, head.value>,
               Grid{dim3(attention_blocks(shape.b * shape.n, shape.s, tiling.rows())), dim3(tiling.threads()),
                    shared_bytes(sizeof(T), head.value, tiling, 1, 0)},
               stream, call, Output{o, o_type == DType::f32, lse, merge});
    });
}

}  // namespace quadrille::cuda
