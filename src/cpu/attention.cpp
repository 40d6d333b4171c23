#include "base/error.hpp"
#include "cpu/attention_tiles.hpp"
#include "cpu/kernels.hpp"
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <omp.h>

// Algorithm 1 of FlashAttention-2 (Dao 2023), transposed: scores x_ks, output o_ds. Logarithms are to base 2 within a tile,
// the softmax's scale being folded into the queries.
namespace quadrille {
namespace {

constexpr float none = -std::numeric_limits<float>::infinity();

// One thread's tiles.
struct Tiles {
    float *row_sd /* of q, then of o */, *q_ds, *o_ds, *k_kd, *v_kd, *p_ks;
    alignas(vector_bytes) float largest_s[tile_size], sum_s[tile_size];
    Tiles(float* at, std::int64_t d) {
        const std::int64_t size = tile_size * d;
        row_sd = at, q_ds = at + size, o_ds = at + 2 * size, k_kd = at + 3 * size, v_kd = at + 4 * size, p_ks = at + 5 * size;
    }
    static std::int64_t floats(std::int64_t d) { return 5 * tile_size * d + tile_size * tile_size; }
};

void load_queries(const Attention& a, const QueryTile& q, Tiles& tiles) {
    const auto [b, s, t, n, g, d] = a.shape;
    const std::int64_t width = whole_lanes(d);
    const float scale = std::numbers::log2e_v<float> / std::sqrt(static_cast<float>(d));
    load_rows(element(a.q, a.type, row(s, n, d, q.b, q.first, q.n)), a.type, n * d, q.count, d, tiles.row_sd, width);
    for (std::int64_t i = 0; i < q.count * width; ++i) tiles.row_sd[i] *= scale;
    std::fill(tiles.row_sd + q.count * width, tiles.row_sd + q.lanes() * width, 0.0f);
    tile_transpose(tiles.row_sd, width, tiles.q_ds, tile_size, q.lanes(), width);
    std::fill_n(tiles.o_ds, width * tile_size, 0.0f);
    std::fill_n(tiles.largest_s, tile_size, none);
    std::fill_n(tiles.sum_s, tile_size, 0.0f);
}

// p_ks: scores in, exp2(score - largest) out; largest, sum and o_ds are brought to the new maximum. A query that has seen no
// key keeps largest = -inf, sum = 0.
void softmax(Tiles& tiles, const KeyTile& k, std::int64_t lanes, std::int64_t d) {
    for (std::int64_t j = 0; j < lanes; j += vector_floats) {
        float *p_k = tiles.p_ks + j, *o_d = tiles.o_ds + j;
        const Floats before = load(tiles.largest_s + j);
        Floats odd = before, even = before;  // two chains: each waits for its last comparison
        for (std::int64_t i = 0; i < k.count; i += 2) even = larger(load(p_k + i * tile_size), even);
        for (std::int64_t i = 1; i < k.count; i += 2) odd = larger(load(p_k + i * tile_size), odd);
        const Floats largest = larger(odd, even);
        const Floats origin = largest == none ? Floats{} : largest;
        Floats sum{};
        for (std::int64_t i = 0; i < k.count; ++i) {
            const Floats p = exp2(load(p_k + i * tile_size) - origin);
            store(p_k + i * tile_size, p);
            sum += p;
        }
        const Floats shrink = exp2(before - origin);
        store(tiles.largest_s + j, largest);
        store(tiles.sum_s + j, multiply_add(load(tiles.sum_s + j), shrink, sum));
        for (std::int64_t i = 0; i < d; ++i) store(o_d + i * tile_size, load(o_d + i * tile_size) * shrink);
    }
}

void drop(const Attention& a, const QueryTile& q, const KeyTile& k, float* p_ks) {
    float factor_s[tile_size];
    for (std::int64_t i = 0; i < k.count; ++i, p_ks += tile_size) {
        dropout_factors(a, q, k.first + i, factor_s);
        for (std::int64_t j = 0; j < q.lanes(); ++j) p_ks[j] *= factor_s[j];
    }
}

void add_keys(const Attention& a, const QueryTile& q, const KeyTile& k, Seen seen, Tiles& tiles) {
    const std::int64_t d = a.shape.d, width = whole_lanes(d), lanes = q.lanes(), stride = a.shape.g * d;
    const std::int64_t at = row(a.shape.t, a.shape.g, d, q.b, k.first, a.kv_head[q.n]);
    const void* keys = element(a.k, a.type, at);
    load_rows(element(a.v, a.type, at), a.type, stride, k.count, d, tiles.v_kd, width);
    if (a.type != DType::f32) load_rows(keys, a.type, stride, k.count, d, tiles.k_kd, width);
    const bool in_place = a.type == DType::f32;  // the product reads each key once, so f32 keys stay where they are
    const float* k_kd = in_place ? static_cast<const float*>(keys) : tiles.k_kd;
    tile_product({k.count, lanes, d, k_kd, in_place ? stride : width, 1, tiles.q_ds, tile_size, tiles.p_ks, tile_size, false});
    if (seen == Seen::some) mask(a, q, k, tiles.p_ks, none);
    softmax(tiles, k, lanes, d);
    if (a.dropout.rate > 0) drop(a, q, k, tiles.p_ks);
    tile_product({d, lanes, k.count, tiles.v_kd, 1, width, tiles.p_ks, tile_size, tiles.o_ds, tile_size, true});
}

// Divides by the softmax's denominator, combines with what o and lse hold if `merge`, and writes both.
void finish(const Attention& a, const QueryTile& q, Tiles& tiles, void* o, DType o_type, float* lse, bool merge) {
    const auto [b, s, t, n, g, d] = a.shape;
    const std::int64_t width = whole_lanes(d), first = row(s, n, d, q.b, q.first, q.n);
    tile_transpose(tiles.o_ds, tile_size, tiles.row_sd, width, width, q.lanes());
    for (std::int64_t i = 0; i < q.count; ++i) {
        float& lse_i = lse[row(s, n, 1, q.b, q.first + i, q.n)];
        const float sum = tiles.sum_s[i], before = merge ? lse_i : none;
        const float here = sum == 0 ? none : std::numbers::ln2_v<float> * (tiles.largest_s[i] + std::log2(sum));
        const float origin = std::max(before, here);
        lse_i = before == none ? here : origin + std::log(std::exp(before - origin) + std::exp(here - origin));
        const float weight = sum == 0 ? 0.0f : std::exp(here - lse_i) / sum;
        float* o_d = tiles.row_sd + i * width;
        for (std::int64_t j = 0; j < d; ++j) o_d[j] *= weight;
        if (before == none) continue;
        const float* before_d = static_cast<const float*>(o) + first + i * n * d;
        const float weight_before = std::exp(before - lse_i);
        for (std::int64_t j = 0; j < d; ++j) o_d[j] += weight_before * before_d[j];
    }
    store_rows(tiles.row_sd, width, 1.0f, element(o, o_type, first), o_type, n * d, q.count, d, false);
}

}  // namespace

std::int64_t CpuKernels::attention_workspace(const AttentionShape& shape, DType, bool backward) const {
    if (backward) return attention_dx_workspace(shape, threads_);
    return threads_ * Tiles::floats(whole_lanes(shape.d)) * static_cast<std::int64_t>(sizeof(float));
}

void CpuKernels::attention(const Attention& a, void* o, DType o_type, float* lse, bool merge) {
    require(!merge || o_type == DType::f32, "attention merges into an f32 output only");
    const std::int64_t tiles_s = tiles_of(a.shape.s), tasks = a.shape.b * a.shape.n * tiles_s;
#pragma omp parallel
    {
        const std::int64_t width = whole_lanes(a.shape.d);
        Tiles tiles(static_cast<float*>(a.workspace) + omp_get_thread_num() * Tiles::floats(width), width);
#pragma omp for schedule(dynamic)
        for (std::int64_t task = 0; task < tasks; ++task) {
            // The last queries see the most keys: longest tasks first.
            const std::int64_t head = task / tiles_s, tile = tiles_s - 1 - task % tiles_s;
            const QueryTile q = query_tile(a, head / a.shape.n, head % a.shape.n, tile);
            load_queries(a, q, tiles);
            for (std::int64_t j = 0; j < tiles_of(a.shape.t); ++j) {
                const KeyTile k = key_tile(a, j);
                const Seen seen_k = seen(a, q, k);
                if (seen_k != Seen::none) add_keys(a, q, k, seen_k, tiles);
            }
            finish(a, q, tiles, o, o_type, lse, merge);
        }
    }
}

}  // namespace quadrille
