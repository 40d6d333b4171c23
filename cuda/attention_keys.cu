// Attention's gradients of k and v: algorithm 2 of FlashAttention-2 (Dao 2023), turned, for one block of keys, queries coming by in tiles:
//
//   pᵀ = exp(k qᵀ/√d - lse)   dpᵀ = v d_oᵀ   dsᵀ = pᵀ (dpᵀ - delta)   dv += pᵀ d_o   dk += dsᵀ q /√d    (with dropout m: p m for p in dv, dp m for dp)
//
// A block owns its dk and dv and adds query heads and tiles in ascending order: the same bits each time. With keys along the rows both second
// products take the scores from registers. Sums of dk and dv are head/2 registers each a thread; heads of 256 are shared by two blocks of 128
// channels, which both make the scores. Memory: k and v once, q and d_o once per block of keys, from the L2 cache but for the first time. 16-bit
// heads to 128 take 128 keys a block of 8 warps, in 73 to 103 KiB of shared memory.
#include "cuda/attention_block.cuh"

namespace quadrille::cuda {
namespace {

template <class T, int head>
__global__ void __launch_bounds__(key_tiling(sizeof(T), head).threads(), 1) key_gradients(const AttentionCall call, const AttentionGradients grads) {
    constexpr Tiling tiling = key_tiling(sizeof(T), head);
    constexpr int m_tiles = tiling.m_tiles, n_tiles = tiling.columns / 8, row = row_elements(sizeof(T), head), parts = head / key_channels(head);
    const auto [batch, s, t, heads, kv_heads, d] = call.a.shape;
    const int channels = static_cast<int>(d), part = static_cast<int>(blockIdx.x) % parts, channel = part * key_channels(head);
    // The first keys are seen by the most queries: longest blocks first.
    const int tiles = static_cast<int>(parts_of(t, tiling.rows())), tile = static_cast<int>(blockIdx.x) / parts % tiles;
    const int head_of_all = static_cast<int>(blockIdx.x) / parts / tiles, b = head_of_all / static_cast<int>(kv_heads);
    const int kv_head = head_of_all % static_cast<int>(kv_heads);
    const int first = tile * tiling.rows(), count = static_cast<int>(t) - first;
    const int warp_row = static_cast<int>(threadIdx.x / 32) * 16 * m_tiles;

    T* const k_shared = reinterpret_cast<T*>(dynamic_shared<unsigned char>());
    T* const v_shared = k_shared + tiling.rows() * row;
    T* const q_shared = v_shared + tiling.rows() * row;
    T* const do_shared = q_shared + 2 * tiling.columns * row;
    QueryStatistics* const statistics_shared = reinterpret_cast<QueryStatistics*>(do_shared + 2 * tiling.columns * row);
    const auto load_queries = [&](int n, int i, int buffer) {
        const int query = i * tiling.columns, queries = static_cast<int>(s) - query, at_shared = buffer * tiling.columns * row;
        const std::int64_t at = row_at(s, heads, d, b, query, n);
        load_tile<T, head>(q_shared + at_shared, static_cast<const T*>(call.a.q) + at, heads * d, tiling.columns, queries, channels, call.packed);
        load_tile<T, head>(do_shared + at_shared, static_cast<const T*>(grads.d_o) + at, heads * d, tiling.columns, queries, channels, call.packed);
        const int pair = 2 * static_cast<int>(threadIdx.x);
        if (pair < tiling.columns)
            copy_16(statistics_shared + buffer * tiling.columns + pair,
                    call.statistics + row_at(heads, padded_queries(s), 1, b, n, query + pair), true);
        close_copies();
    };

    const Lane lane;
    Sums<m_tiles, key_channels(head) / 8> dk, dv;
    clear(dk);
    clear(dv);
    QueryTiles<tiling.rows(), tiling.columns> walk(call, b, kv_head, tile);
    Turn now = walk.next();
    const std::int64_t at = row_at(t, kv_heads, d, b, first, kv_head);
    load_tile<T, head>(k_shared, static_cast<const T*>(call.a.k) + at, kv_heads * d, tiling.rows(), count, channels, call.packed);
    load_tile<T, head>(v_shared, static_cast<const T*>(call.a.v) + at, kv_heads * d, tiling.rows(), count, channels, call.packed);
    int n = walk.head();
    if (now) load_queries(n, now.tile(), 0);
    for (int buffer = 0; now; buffer ^= 1) {
        wait_for_copies<0>();
        __syncthreads();  // the tile is there, and nobody reads the other buffer any more
        const Turn next = walk.next();
        if (next) load_queries(walk.head(), next.tile(), buffer ^ 1);
        const T *const q = q_shared + buffer * tiling.columns * row, *const d_o = do_shared + buffer * tiling.columns * row;
        const QueryStatistics* const statistics = statistics_shared + buffer * tiling.columns + 2 * lane.t;
        Sums<m_tiles, n_tiles> p, ds;
        clear(p);
        clear(ds);
        add_rows_by_rows<T, head>(p, k_shared + warp_row * row, q, channels);
        add_rows_by_rows<T, head>(ds, v_shared + warp_row * row, d_o, channels);
        if (!now.all()) mask<true>(p, call.a, b, first + warp_row, now.tile() * tiling.columns);
        Drops<m_tiles, n_tiles> drops;
        if (call.a.dropout.rate > 0) drops.template draw<true>(call.a, b, n, first + warp_row, now.tile() * tiling.columns);
        differentiate_softmax(p, ds, call.scale, drops, [&](int, int column, int i) { return statistics[8 * column + i % 2]; });
        add_scores_by_rows<T, head>(dv, p, d_o + channel, channels - channel);
        add_scores_by_rows<T, head>(dk, ds, q + channel, channels - channel);
        now = next;
        n = walk.head();
    }
    close_copies();
    wait_for_copies<0>();  // of the keys, where no query sees them
    const Target to{grads.dk, at + channel, kv_heads * d, count, channels - channel, grads.wide, grads.accumulate, call.packed};
    store_sums<T>(dk, to, warp_row, call.scale);
    Target to_dv = to;
    to_dv.y = grads.dv;
    store_sums<T>(dv, to_dv, warp_row, 1.0f);
}

}  // namespace

void attention_key_gradients(const AttentionCall& call, const AttentionGradients& grads, cudaStream_t stream) {
    for_kernel(call.a, [&](auto element, auto head) {
        using T = decltype(element);
        constexpr Tiling tiling = key_tiling(sizeof(T), head.value);
        const AttentionShape& shape = call.a.shape;
        const std::int64_t parts = head.value / key_channels(head.value);
        launch(key_gradients<T, head.value>,
               Grid{dim3(attention_blocks(shape.b * shape.g * parts, shape.t, tiling.rows())), dim3(tiling.threads()),
                    shared_bytes(sizeof(T), head.value, tiling, 2, sizeof(QueryStatistics))},
               stream, call, grads);
    });
}

}  // namespace quadrille::cuda
