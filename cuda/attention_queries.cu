// Attention's gradient of q: algorithm 2 of FlashAttention-2 (Dao 2023) for one block of queries, keys and values coming by in tiles:
//
//   p = exp(q kᵀ/√d - lse)   dp = d_o vᵀ   ds = p (dp - delta)   dq += ds k /√d           (with dropout m: dp m for dp)
//
// A block owns its dq and adds the tiles in ascending order: the same bits each time. The price is that attention_keys.cu makes p and dp again: 7
// products a tile in both instead of the 5 that atomic sums would need. Memory as in the forward pass, d_o besides q. 16-bit heads of 64 take 128
// queries a block in 54 KiB of shared memory, larger ones 64 in 68 to 132 KiB.
#include "cuda/attention_block.cuh"

namespace quadrille::cuda {
namespace {

template <class T, int head>
__global__ void __launch_bounds__(query_tiling(sizeof(T), head).threads(), 1) query_gradients(const AttentionCall call, const AttentionGradients grads) {
    constexpr Tiling tiling = query_tiling(sizeof(T), head);
    constexpr int m_tiles = tiling.m_tiles, n_tiles = tiling.columns / 8, row = row_elements(sizeof(T), head);
    const auto [batch, s, t, heads, kv_heads, d] = call.a.shape;
    const int channels = static_cast<int>(d);
    // The last queries see the most keys: longest blocks first.
    const int tiles = static_cast<int>(parts_of(s, tiling.rows())), head_of_all = static_cast<int>(blockIdx.x) / tiles;
    const int tile = tiles - 1 - static_cast<int>(blockIdx.x) % tiles, b = head_of_all / static_cast<int>(heads);
    const int n = head_of_all % static_cast<int>(heads);
    const int first = tile * tiling.rows(), count = static_cast<int>(s) - first;
    const int warp_row = static_cast<int>(threadIdx.x / 32) * 16 * m_tiles;

    T* const q_shared = reinterpret_cast<T*>(dynamic_shared<unsigned char>());
    T* const do_shared = q_shared + tiling.rows() * row;
    T* const k_shared = do_shared + tiling.rows() * row;
    T* const v_shared = k_shared + 2 * tiling.columns * row;
    const auto load_keys = [&](int j, int buffer) {
        const int key = j * tiling.columns, keys = static_cast<int>(t) - key, at_shared = buffer * tiling.columns * row;
        const std::int64_t at = row_at(t, kv_heads, d, b, key, call.a.kv_head[n]);
        load_tile<T, head>(k_shared + at_shared, static_cast<const T*>(call.a.k) + at, kv_heads * d, tiling.columns, keys, channels, call.packed);
        load_tile<T, head>(v_shared + at_shared, static_cast<const T*>(call.a.v) + at, kv_heads * d, tiling.columns, keys, channels, call.packed);
        close_copies();
    };

    const Lane lane;
    QueryStatistics statistics[2 * m_tiles];
#pragma unroll
    for (int r = 0; r < 2 * m_tiles; ++r) {
        const int i = warp_row + 8 * r + lane.g;
        if (i < count) statistics[r] = call.statistics[row_at(heads, padded_queries(s), 1, b, n, first + i)];
    }
    Sums<m_tiles, head / 8> dq;
    clear(dq);
    KeyTiles<tiling.rows(), tiling.columns> walk(call, b, tile);
    Turn now = walk.next();
    const std::int64_t at = row_at(s, heads, d, b, first, n);
    load_tile<T, head>(q_shared, static_cast<const T*>(call.a.q) + at, heads * d, tiling.rows(), count, channels, call.packed);
    load_tile<T, head>(do_shared, static_cast<const T*>(grads.d_o) + at, heads * d, tiling.rows(), count, channels, call.packed);
    if (now) load_keys(now.tile(), 0);
    for (int buffer = 0; now; buffer ^= 1) {
        wait_for_copies<0>();
        __syncthreads();  // the tile is there, and nobody reads the other buffer any more
        const Turn next = walk.next();
        if (next) load_keys(next.tile(), buffer ^ 1);
        const T* const k = k_shared + buffer * tiling.columns * row;
        Sums<m_tiles, n_tiles> p, ds;
        clear(p);
        clear(ds);
        add_rows_by_rows<T, head>(p, q_shared + warp_row * row, k, channels);
        add_rows_by_rows<T, head>(ds, do_shared + warp_row * row, v_shared + buffer * tiling.columns * row, channels);
        if (!now.all()) mask<false>(p, call.a, b, first + warp_row, now.tile() * tiling.columns);
        Drops<m_tiles, n_tiles> drops;
        if (call.a.dropout.rate > 0) drops.template draw<false>(call.a, b, n, first + warp_row, now.tile() * tiling.columns);
        differentiate_softmax(p, ds, call.scale, drops, [&](int m, int, int i) { return statistics[2 * m + i / 2]; });
        add_scores_by_rows<T, head>(dq, ds, k, channels);
        now = next;
    }
    close_copies();
    wait_for_copies<0>();  // of the queries, where no key is seen
    store_sums<T>(dq, Target{grads.dq, at, heads * d, count, channels, grads.wide, grads.accumulate, call.packed}, warp_row, call.scale);
}

}  // namespace

void attention_query_gradients(const AttentionCall& call, const AttentionGradients& grads, cudaStream_t stream) {
    for_kernel(call.a, [&](auto element, auto head) {
        using T = decltype(element);
        constexpr Tiling tiling = query_tiling(sizeof(T), head.value);
        const AttentionShape& shape = call.a.shape;
        launch(query_gradients<T, head.value>,
               Grid{dim3(attention_blocks(shape.b * shape.n, shape.s, tiling.rows())), dim3(tiling.threads()),
                    shared_bytes(sizeof(T), head.value, tiling, 2, 0)},
               stream, call, grads);
    });
}

}  // namespace quadrille::cuda
