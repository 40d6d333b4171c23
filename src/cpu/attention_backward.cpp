#include "base/error.hpp"
#include "cpu/attention_tiles.hpp"
#include "cpu/kernels.hpp"
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <omp.h>

// Algorithm 2 of FlashAttention-2 (Dao 2023), transposed like the forward:
//   p_ks = exp(k qᵀ/√d - lse)   dp_ks = v d_oᵀ   delta_s = Σ_d o d_o   ds_ks = p (dp - delta)
//   dv_kd += p d_o   dk_kd += ds q /√d   dq_ds += kᵀ ds /√d            (with dropout m: p m for p in dv, dp m for dp in ds)
//
// Two ways, the same bits. Joint: a thread owns a kv head and makes all three gradients from each tile of scores, 5 products
// a tile; the sums of dk and dv over all queries are kept in the workspace. Split: one pass whose threads own query tiles and
// make dq, one whose threads own key tiles and make dk and dv, 7 products a tile; for when there are too few heads to go round.
// In both a gradient element has one owner, who adds heads and tiles in ascending order.
namespace quadrille {
namespace {

// One thread's tiles. dk_td and dv_td have room for `keys` keys.
struct Tiles {
    float *q_sd, *q_ds, *do_sd, *do_ds, *k_kd, *v_kd, *dq_ds, *p_ks, *ds_ks, *dk_td, *dv_td;
    const float* v_first;  // the values of the key tile, v_row floats apart: v_kd or the caller's
    std::int64_t v_row;
    alignas(vector_bytes) float lse_s[tile_size], delta_s[tile_size];
    Tiles(float* at, std::int64_t d, std::int64_t keys) {
        for (float** tile : {&q_sd, &q_ds, &do_sd, &do_ds, &k_kd, &v_kd, &dq_ds}) *tile = at, at += tile_size * d;
        for (float** tile : {&p_ks, &ds_ks}) *tile = at, at += tile_size * tile_size;
        for (float** tile : {&dk_td, &dv_td}) *tile = at, at += keys * d;
    }
    static std::int64_t floats(std::int64_t d, std::int64_t keys) {
        return 7 * tile_size * d + 2 * tile_size * tile_size + 2 * keys * d;
    }
};

struct Gradients {
    const void* o;
    const float* lse;
    const void* d_o;
    void *dq, *dk, *dv;
    DType type;
    bool accumulate;
};

enum class Wanted { dq, dk_dv, all };

// The tile's q and d_o, lse to base 2 (+inf where no key is seen, so that every probability is 0) and delta.
void load_queries(const Attention& a, const Gradients& grads, const QueryTile& q, Tiles& tiles) {
    const auto [b, s, t, n, g, d] = a.shape;
    const std::int64_t width = whole_lanes(d), lanes = q.lanes(), at = row(s, n, d, q.b, q.first, q.n);
    load_rows(element(a.q, a.type, at), a.type, n * d, q.count, d, tiles.q_sd, width);
    load_rows(element(grads.d_o, a.type, at), a.type, n * d, q.count, d, tiles.do_sd, width);
    float* o_sd = tiles.dq_ds;  // free until the first product
    load_rows(element(grads.o, a.type, at), a.type, n * d, q.count, d, o_sd, width);
    for (std::int64_t i = 0; i < lanes; ++i) {
        const float lse = i < q.count ? grads.lse[row(s, n, 1, q.b, q.first + i, q.n)] : -std::numeric_limits<float>::infinity();
        tiles.lse_s[i] = std::isinf(lse) ? std::numeric_limits<float>::infinity() : std::numbers::log2e_v<float> * lse;
        float delta[tile_lanes] = {};
        for (std::int64_t j = 0; j < width && i < q.count; j += tile_lanes)
            for (std::int64_t l = 0; l < tile_lanes; ++l) delta[l] += o_sd[i * width + j + l] * tiles.do_sd[i * width + j + l];
        tiles.delta_s[i] = std::accumulate(delta, delta + tile_lanes, 0.0f);
    }
    std::fill(tiles.q_sd + q.count * width, tiles.q_sd + lanes * width, 0.0f);
    std::fill(tiles.do_sd + q.count * width, tiles.do_sd + lanes * width, 0.0f);
    tile_transpose(tiles.q_sd, width, tiles.q_ds, tile_size, lanes, width);
    tile_transpose(tiles.do_sd, width, tiles.do_ds, tile_size, lanes, width);
}

// The products read values once a tile, so f32 values stay where they are; keys are read again and again.
void load_keys(const Attention& a, std::int64_t b, std::int64_t kv_head, const KeyTile& k, Tiles& tiles) {
    const auto [batch, s, t, n, g, d] = a.shape;
    const std::int64_t at = row(t, g, d, b, k.first, kv_head);
    const void* v = element(a.v, a.type, at);
    load_rows(element(a.k, a.type, at), a.type, g * d, k.count, d, tiles.k_kd, whole_lanes(d));
    if (a.type != DType::f32) load_rows(v, a.type, g * d, k.count, d, tiles.v_kd, whole_lanes(d));
    tiles.v_first = a.type == DType::f32 ? static_cast<const float*>(v) : tiles.v_kd;
    tiles.v_row = a.type == DType::f32 ? g * d : whole_lanes(d);
}

// In: p_ks holds k qᵀ and ds_ks holds dp. Out: p (times the dropout) and ds, both 0 where a query does not see the key.
void differentiate_softmax(const Attention& a, const QueryTile& q, const KeyTile& k, Seen seen, Tiles& tiles) {
    const float scale = std::numbers::log2e_v<float> / std::sqrt(static_cast<float>(a.shape.d));
    if (seen == Seen::some) mask(a, q, k, tiles.p_ks, -std::numeric_limits<float>::infinity());
    float factor_s[tile_size];
    for (std::int64_t i = 0; i < k.count; ++i) {
        float *p_s = tiles.p_ks + i * tile_size, *ds_s = tiles.ds_ks + i * tile_size;
        if (a.dropout.rate > 0) dropout_factors(a, q, k.first + i, factor_s);
        for (std::int64_t j = 0; j < q.lanes(); j += vector_floats) {
            const Floats p = exp2(multiply_add(load(p_s + j), broadcast(scale), -load(tiles.lse_s + j)));
            const Floats delta = load(tiles.delta_s + j), dp = load(ds_s + j);
            if (a.dropout.rate > 0) {
                const Floats factor = load(factor_s + j);
                store(p_s + j, p * factor);
                store(ds_s + j, p * multiply_add(dp, factor, -delta));
            } else {
                store(p_s + j, p);
                store(ds_s + j, p * (dp - delta));
            }
        }
    }
}

// Adds one tile of scores to the gradients wanted; dk_kd and dv_kd are the rows of the key tile.
void add_tile(const Attention& a, const QueryTile& q, const KeyTile& k, Seen seen, Wanted wanted, Tiles& tiles, float* dk_kd,
              float* dv_kd) {
    const std::int64_t d = a.shape.d, width = whole_lanes(d), lanes = q.lanes();
    tile_product({k.count, lanes, d, tiles.k_kd, width, 1, tiles.q_ds, tile_size, tiles.p_ks, tile_size, false});
    tile_product({k.count, lanes, d, tiles.v_first, tiles.v_row, 1, tiles.do_ds, tile_size, tiles.ds_ks, tile_size, false});
    differentiate_softmax(a, q, k, seen, tiles);
    if (wanted != Wanted::dk_dv)
        tile_product({d, lanes, k.count, tiles.k_kd, 1, width, tiles.ds_ks, tile_size, tiles.dq_ds, tile_size, true});
    if (wanted == Wanted::dq) return;
    tile_product({k.count, width, lanes, tiles.p_ks, tile_size, 1, tiles.do_sd, width, dv_kd, width, true});
    tile_product({k.count, width, lanes, tiles.ds_ks, tile_size, 1, tiles.q_sd, width, dk_kd, width, true});
}

// One tile of queries against all keys: its dq, and unless `wanted` is dq its part of dk_td and dv_td.
void add_queries(const Attention& a, const Gradients& grads, const QueryTile& q, Wanted wanted, Tiles& tiles) {
    const auto [b, s, t, n, g, d] = a.shape;
    const std::int64_t width = whole_lanes(d), at = row(s, n, d, q.b, q.first, q.n);
    load_queries(a, grads, q, tiles);
    std::fill_n(tiles.dq_ds, width * tile_size, 0.0f);
    for (std::int64_t j = 0; j < tiles_of(t); ++j) {
        const KeyTile k = key_tile(a, j);
        const Seen seen_k = seen(a, q, k);
        if (seen_k == Seen::none) continue;
        load_keys(a, q.b, a.kv_head[q.n], k, tiles);
        add_tile(a, q, k, seen_k, wanted, tiles, tiles.dk_td + k.first * width, tiles.dv_td + k.first * width);
    }
    tile_transpose(tiles.dq_ds, tile_size, tiles.q_sd, width, width, q.lanes());
    store_rows(tiles.q_sd, width, 1.0f / std::sqrt(static_cast<float>(d)), element(grads.dq, grads.type, at), grads.type, n * d,
               q.count, d, grads.accumulate);
}

// Writes dk and dv of keys first .. first+count, whose sums begin at row 0 of dk_td and dv_td.
void store_keys(const Attention& a, const Gradients& grads, std::int64_t b, std::int64_t kv_head, const KeyTile& k, const Tiles& tiles) {
    const auto [batch, s, t, n, g, d] = a.shape;
    const std::int64_t width = whole_lanes(d), at = row(t, g, d, b, k.first, kv_head);
    store_rows(tiles.dk_td, width, 1.0f / std::sqrt(static_cast<float>(d)), element(grads.dk, grads.type, at), grads.type, g * d,
               k.count, d, grads.accumulate);
    store_rows(tiles.dv_td, width, 1.0f, element(grads.dv, grads.type, at), grads.type, g * d, k.count, d, grads.accumulate);
}

void clear_keys(Tiles& tiles, std::int64_t floats) {
    std::fill_n(tiles.dk_td, floats, 0.0f);
    std::fill_n(tiles.dv_td, floats, 0.0f);
}

// The joint way's task: all of one kv head.
void kv_head_gradients(const Attention& a, const Gradients& grads, std::int64_t b, std::int64_t kv_head, Tiles& tiles) {
    clear_keys(tiles, a.shape.t * whole_lanes(a.shape.d));
    for (std::int64_t n = 0; n < a.shape.n; ++n) {
        if (a.kv_head[n] != kv_head) continue;
        for (std::int64_t i = 0; i < tiles_of(a.shape.s); ++i) add_queries(a, grads, query_tile(a, b, n, i), Wanted::all, tiles);
    }
    store_keys(a, grads, b, kv_head, {0, a.shape.t}, tiles);
}

// The split way's second pass: dk and dv of one tile of keys.
void key_gradients(const Attention& a, const Gradients& grads, std::int64_t b, std::int64_t kv_head, const KeyTile& k, Tiles& tiles) {
    clear_keys(tiles, tile_size * whole_lanes(a.shape.d));
    load_keys(a, b, kv_head, k, tiles);
    for (std::int64_t n = 0; n < a.shape.n; ++n) {
        if (a.kv_head[n] != kv_head) continue;
        for (std::int64_t i = 0; i < tiles_of(a.shape.s); ++i) {
            const QueryTile q = query_tile(a, b, n, i);
            const Seen seen_q = seen(a, q, k);
            if (seen_q == Seen::none) continue;
            load_queries(a, grads, q, tiles);
            add_tile(a, q, k, seen_q, Wanted::dk_dv, tiles, tiles.dk_td, tiles.dv_td);
        }
    }
    store_keys(a, grads, b, kv_head, k, tiles);
}

// Whether the joint way's 5 products on the busiest thread take no longer than the split way's 7, evenly shared.
bool joint(const AttentionShape& shape, std::int64_t threads) {
    const std::int64_t heads = shape.b * shape.g, rounds = (heads + threads - 1) / threads;
    return 5 * rounds * threads <= 7 * heads;
}

std::int64_t workspace_floats(const AttentionShape& shape, std::int64_t threads) {
    return threads * Tiles::floats(whole_lanes(shape.d), joint(shape, threads) ? shape.t : tile_size);
}

}  // namespace

std::int64_t attention_dx_workspace(const AttentionShape& shape, int threads) {
    std::int64_t floats = 0;
    for (int team = 1; team <= threads; ++team) floats = std::max(floats, workspace_floats(shape, team));
    return floats * static_cast<std::int64_t>(sizeof(float));
}

void CpuKernels::attention_dx(const Attention& a, const void* o, const float* lse, const void* d_o, void* dq, void* dk, void* dv,
                  DType grad_type, bool accumulate) {
    require(!accumulate || grad_type == DType::f32, "attention accumulates into f32 gradients only");
    const Gradients grads{o, lse, d_o, dq, dk, dv, grad_type, accumulate};
    const auto [b, s, t, n, g, d] = a.shape;
    const std::int64_t batch = b, queries = s, keys = t, heads = n, kv_heads = g, width = whole_lanes(d);
#pragma omp parallel
    {
        const bool is_joint = joint(a.shape, omp_get_num_threads());
        const std::int64_t kept = is_joint ? keys : tile_size;
        Tiles tiles(static_cast<float*>(a.workspace) + omp_get_thread_num() * Tiles::floats(width, kept), width, kept);
        if (is_joint) {
#pragma omp for schedule(dynamic)
            for (std::int64_t task = 0; task < batch * kv_heads; ++task)
                kv_head_gradients(a, grads, task / kv_heads, task % kv_heads, tiles);
        } else {
#pragma omp for schedule(dynamic) nowait
            for (std::int64_t task = 0; task < batch * heads * tiles_of(queries); ++task) {
                const std::int64_t head = task / tiles_of(queries), tile = tiles_of(queries) - 1 - task % tiles_of(queries);
                add_queries(a, grads, query_tile(a, head / heads, head % heads, tile), Wanted::dq, tiles);
            }
#pragma omp for schedule(dynamic)
            for (std::int64_t task = 0; task < batch * kv_heads * tiles_of(keys); ++task) {
                const std::int64_t head = task / tiles_of(keys), tile = task % tiles_of(keys);
                key_gradients(a, grads, head / kv_heads, head % kv_heads, key_tile(a, tile), tiles);
            }
        }
    }
}

}  // namespace quadrille
