#include "cpu/attention_tiles.hpp"
#include "base/random.hpp"
#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

namespace quadrille {
namespace {

// The least and the greatest of x[count].
std::pair<std::int64_t, std::int64_t> extent(const std::int64_t* x, std::int64_t count) {
    std::int64_t least = x[0], most = x[0];
    for (std::int64_t i = 1; i < count; ++i) least = std::min(least, x[i]), most = std::max(most, x[i]);
    return {least, most};
}

}  // namespace

QueryTile query_tile(const Attention& a, std::int64_t b, std::int64_t n, std::int64_t tile) {
    QueryTile q;
    q.b = b, q.n = n, q.first = tile * tile_size, q.count = std::min(tile_size, a.shape.s - q.first);
    for (std::int64_t i = 0; i < tile_size; ++i) {
        const std::int64_t s = q.first + std::min(i, q.count - 1);
        q.newest[i] = a.q_position[s];
        q.oldest[i] = a.document_start ? a.document_start[b * a.shape.s + s] : std::numeric_limits<std::int64_t>::min();
    }
    std::tie(q.least_oldest, q.most_oldest) = extent(q.oldest.data(), tile_size);
    std::tie(q.least_newest, q.most_newest) = extent(q.newest.data(), tile_size);
    return q;
}

KeyTile key_tile(const Attention& a, std::int64_t tile) {
    return {tile * tile_size, std::min(tile_size, a.shape.t - tile * tile_size)};
}

Seen seen(const Attention& a, const QueryTile& q, const KeyTile& k) {
    const auto [first, last] = extent(a.k_position + k.first, k.count);
    if (first > q.most_newest || last < q.least_oldest) return Seen::none;
    return last <= q.least_newest && first >= q.most_oldest ? Seen::all : Seen::some;
}

void mask(const Attention& a, const QueryTile& q, const KeyTile& k, float* x_ks, float value) {
    const std::int64_t lanes = q.lanes();
    for (std::int64_t i = 0; i < k.count; ++i, x_ks += tile_size) {
        const std::int64_t position = a.k_position[k.first + i];
        for (std::int64_t j = 0; j < lanes; ++j)
            x_ks[j] = q.oldest[j] <= position && position <= q.newest[j] ? x_ks[j] : value;
    }
}

void dropout_factors(const Attention& a, const QueryTile& q, std::int64_t key, float* factor) {
    const AttentionDropout& drop = a.dropout;
    const auto seq = static_cast<std::uint64_t>(drop.seq), position = static_cast<std::uint64_t>(a.k_position[key]);
    const auto matrix = static_cast<std::uint64_t>(drop.sample[q.b] * drop.heads + drop.head[q.n]) * seq;
    const std::uint32_t threshold = keep_threshold(drop.rate);
    const float kept = 1.0f / (1.0f - drop.rate);
    const std::int64_t lanes = q.lanes();
    for (std::int64_t j = 0; j < lanes; ++j) {
        const std::uint64_t index = (matrix + static_cast<std::uint64_t>(q.newest[j])) * seq + position;
        factor[j] = keeps(drop.key, index, threshold) ? kept : 0.0f;
    }
}

}  // namespace quadrille
