// What the forward and the backward of attention share: tiles of queries and keys, which of their scores are seen, dropout.
// No arithmetic on the tensors but the masks.
//
// In a tile of scores the queries run along the vector lanes and the keys along the rows: x_ks. A maximum or a sum over keys
// is then lane by lane, and keys and values are read as they lie.
#pragma once
#include "cpu/tile.hpp"
#include "kernels/attention.hpp"
#include <array>

namespace quadrille {

constexpr std::int64_t tile_size = 64;  // queries of a tile, and keys
constexpr std::int64_t tiles_of(std::int64_t n) { return (n + tile_size - 1) / tile_size; }

// Queries first .. first+count of one sequence and head. Lanes from count on repeat the last query's bounds.
struct QueryTile {
    std::int64_t b, n, first, count;
    std::array<std::int64_t, tile_size> oldest, newest;  // the key positions a query sees, both included
    std::int64_t least_oldest, most_oldest, least_newest, most_newest;
    std::int64_t lanes() const { return whole_lanes(count); }
};
QueryTile query_tile(const Attention& a, std::int64_t b, std::int64_t n, std::int64_t tile);

struct KeyTile {
    std::int64_t first, count;
};
KeyTile key_tile(const Attention& a, std::int64_t tile);

enum class Seen { none, some, all };
Seen seen(const Attention& a, const QueryTile& q, const KeyTile& k);

// x_ks[k.count, tile_size]: every score that is not seen becomes `value`.
void mask(const Attention& a, const QueryTile& q, const KeyTile& k, float* x_ks, float value);

// factor[lanes] of one key: 0 where its probability is dropped, 1/(1-rate) where it is kept.
void dropout_factors(const Attention& a, const QueryTile& q, std::int64_t key, float* factor);

// attention_workspace of the backward pass, which alone knows its tiles.
std::int64_t attention_dx_workspace(const AttentionShape& shape, int threads);

// The index of element 0 of row (b, position, head) in an array [b, positions, heads, d].
inline std::int64_t row(std::int64_t positions, std::int64_t heads, std::int64_t d, std::int64_t b, std::int64_t position,
                        std::int64_t head) {
    return ((b * positions + position) * heads + head) * d;
}

}  // namespace quadrille
