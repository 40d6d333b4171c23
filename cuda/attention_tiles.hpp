// Which tiles of scores attention's kernels compute, how large they are, and where their scratch lies: plain functions of sizes and positions, for
// host and device. No arithmetic on the tensors.
//
// Position lists may jump and documents begin anywhere, so what a tile sees follows from bounds: the extremes of each strip of 32 neighbours, which
// a first small kernel leaves in the workspace. A tile is one strip or some whole ones (or half a strip, whose bounds then are the strip's: no tile
// is lost by that).
#pragma once
#include "kernels/attention.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>

namespace quadrille::cuda {

constexpr std::int64_t parts_of(std::int64_t n, std::int64_t size) { return (n + size - 1) / size; }

constexpr std::int64_t strip = 32;

struct KeyBounds {
    std::int64_t first = std::numeric_limits<std::int64_t>::max(), last = std::numeric_limits<std::int64_t>::min();
};
// Of the oldest and the newest key position that a query sees, both included.
struct QueryBounds {
    std::int64_t least_oldest = std::numeric_limits<std::int64_t>::max(), most_oldest = std::numeric_limits<std::int64_t>::min();
    std::int64_t least_newest = std::numeric_limits<std::int64_t>::max(), most_newest = std::numeric_limits<std::int64_t>::min();
};

constexpr KeyBounds both(const KeyBounds& a, const KeyBounds& b) { return {std::min(a.first, b.first), std::max(a.last, b.last)}; }
constexpr QueryBounds both(const QueryBounds& a, const QueryBounds& b) {
    return {std::min(a.least_oldest, b.least_oldest), std::max(a.most_oldest, b.most_oldest), std::min(a.least_newest, b.least_newest),
            std::max(a.most_newest, b.most_newest)};
}

// The bounds of tile `tile` of so many neighbours, of `count` in all.
template <class Bounds>
constexpr Bounds tile_bounds(const Bounds* strips, std::int64_t tile, std::int64_t size, std::int64_t count) {
    Bounds bounds;
    const std::int64_t end = std::min(parts_of(count, strip), parts_of((tile + 1) * size, strip));
    for (std::int64_t i = tile * size / strip; i < end; ++i) bounds = both(bounds, strips[i]);
    return bounds;
}

// Of a tile's scores, as far as bounds can tell: `all` and `none` are certain.
enum class Seen { none, some, all };
constexpr Seen seen(const QueryBounds& q, const KeyBounds& k) {
    if (k.first > q.most_newest || k.last < q.least_oldest) return Seen::none;
    return k.last <= q.least_newest && k.first >= q.most_oldest ? Seen::all : Seen::some;
}

// ---- tiles

// A block's rows of scores stay; tiles of columns come by, each in turn in one of two buffers. A warp has 16 m_tiles rows.
struct Tiling {
    int warps, m_tiles, columns;
    constexpr int rows() const { return 16 * m_tiles * warps; }
    constexpr int threads() const { return 32 * warps; }
};

// Head sizes that kernels are made for; a smaller one is padded with zeros in shared memory, and products of padding alone are left out.
constexpr std::int64_t most_head_size = 256;
constexpr int padded_head(std::int64_t d) { return d <= 64 ? 64 : d <= 128 ? 128 : 256; }

// The sizes follow from registers (at most 255 a thread: sums of the output, scores) and from shared memory (163 KiB of an sm_80), and were not
// measured. 16-bit rows of 32 a warp read each key from shared memory half as often as rows of 16.
constexpr Tiling forward_tiling(int element_bytes, int head) {
    if (element_bytes == 2) return head == 64 ? Tiling{4, 2, 64} : head == 128 ? Tiling{4, 2, 32} : Tiling{4, 1, 32};
    return head == 256 ? Tiling{4, 1, 16} : Tiling{4, 1, 32};
}
// Rows are queries: dq.
constexpr Tiling query_tiling(int element_bytes, int head) {
    if (element_bytes == 2) return head == 64 ? Tiling{4, 2, 32} : Tiling{4, 1, 32};
    return head == 256 ? Tiling{2, 1, 16} : Tiling{4, 1, 32};
}
// Rows are keys: dk and dv, of at most 128 channels a block.
constexpr Tiling key_tiling(int element_bytes, int head) {
    if (element_bytes == 2) return head == 64 ? Tiling{8, 1, 64} : head == 128 ? Tiling{8, 1, 32} : Tiling{4, 1, 32};
    return head == 256 ? Tiling{2, 1, 16} : Tiling{4, 1, 32};
}
constexpr int key_channels(int head) { return std::min(head, 128); }

// ---- shared memory. A row is 16 bytes longer than its elements, so that eight rows' 16-byte pieces lie in different banks.
constexpr int row_elements(int element_bytes, int head) { return head + 16 / element_bytes; }
constexpr std::int64_t tile_bytes(int element_bytes, int head, int rows) {
    return std::int64_t{rows} * element_bytes * row_elements(element_bytes, head);
}
// `staying` tiles of rows, two buffers of two tiles of columns, and so many bytes more for each column and buffer.
constexpr std::int64_t shared_bytes(int element_bytes, int head, const Tiling& tiling, int staying, int column_bytes) {
    return staying * tile_bytes(element_bytes, head, tiling.rows()) + 4 * tile_bytes(element_bytes, head, tiling.columns) +
           2 * tiling.columns * column_bytes;
}

// ---- the workspace

// A query's lse, to base 2 and +inf where it sees no key, so that all its probabilities are 0; delta = Σ_d o d_o (Dao 2023, algorithm 2).
struct QueryStatistics {
    float lse = std::numeric_limits<float>::infinity(), delta = 0;
};

// Offsets in bytes, each a multiple of 256.
struct Workspace {
    std::int64_t keys;        // KeyBounds[strips of t]
    std::int64_t queries;     // QueryBounds[b, strips of s]
    std::int64_t statistics;  // QueryStatistics[b, n, padded s]; of the backward pass
    std::int64_t bytes;
};
constexpr std::int64_t padded_queries(std::int64_t s) { return parts_of(s, 64) * 64; }
constexpr Workspace workspace_of(const AttentionShape& shape, bool backward) {
    const auto sized = [](std::int64_t count, std::size_t bytes) { return parts_of(count * static_cast<std::int64_t>(bytes), 256) * 256; };
    Workspace w{};
    w.queries = sized(parts_of(shape.t, strip), sizeof(KeyBounds));
    w.statistics = w.queries + sized(shape.b * parts_of(shape.s, strip), sizeof(QueryBounds));
    w.bytes = w.statistics + (backward ? sized(shape.b * shape.n * padded_queries(shape.s), sizeof(QueryStatistics)) : 0);
    return w;
}

}  // namespace quadrille::cuda
