// The shapes of launches over elements and over rows. Pure.
#pragma once
#include "base/rounding.hpp"

#include <algorithm>
#include <cstdint>

namespace quadrille::cuda {

constexpr std::int64_t most_blocks_x = 0x7FFFFFFF, most_blocks_y = 65535;

constexpr int map_threads = 256;

// Blocks whose threads take `count` elements two chunks each; beyond the largest grid they take more by turns.
constexpr unsigned map_blocks(std::int64_t count, std::int64_t chunk) {
    return static_cast<unsigned>(std::min(most_blocks_x, ceil_div(ceil_div(count, chunk), std::int64_t{2} * map_threads)));
}

// Where the threads of a block lie side by side over columns and below each other over rows, so that what belongs to a column is read once for
// several rows.
constexpr int tile_columns = 32, tile_rows = 8;  // threads

// Blocks over rows, whose threads take about `turns` rows each.
constexpr unsigned tile_blocks(std::int64_t rows, std::int64_t turns) {
    return static_cast<unsigned>(std::min(most_blocks_y, ceil_div(rows, turns * tile_rows)));
}

// Sums over rows are made by at most so many groups of rows: enough blocks for every SM, and so few groups that their sums, which go through memory,
// are a sixteenth of a 16-bit operand.
constexpr std::int64_t sum_groups(std::int64_t rows, std::int64_t cols) {
    constexpr std::int64_t wanted_blocks = 1024, least_rows = 64;
    const std::int64_t beside = std::max<std::int64_t>(ceil_div(cols, std::int64_t{8} * tile_columns), 1);
    return std::min({ceil_div(rows, least_rows), ceil_div(wanted_blocks, beside), most_blocks_y});
}

// The rows so grouped: every group but the last has `size` of them, and the last one has some. There may be fewer groups than sum_groups allows, by
// which workspace is sized.
struct RowGroups {
    std::int64_t rows, cols, groups, size;
};
constexpr RowGroups row_groups(std::int64_t rows, std::int64_t cols) {
    if (rows == 0) return {rows, cols, 0, 0};
    const std::int64_t size = ceil_div(rows, sum_groups(rows, cols));
    return {rows, cols, ceil_div(rows, size), size};
}

// How rotary shares its work: a block takes `positions` of the sequence, for which it makes the table of angles once, and every `blocks`-th sample.
struct RotaryShape {
    std::int64_t positions, blocks_x, blocks_y;
};
// `row` chunks of pairs for a position of a sample (all heads), `half` pairs a head.
constexpr RotaryShape rotary_shape(std::int64_t b, std::int64_t s, std::int64_t row, std::int64_t half) {
    constexpr std::int64_t wanted_blocks = 1024, table = 1024;  // angles
    RotaryShape r{};
    r.positions = std::clamp<std::int64_t>(map_threads / std::max<std::int64_t>(row, 1), 1, std::max<std::int64_t>(table / half, 1));
    r.blocks_x = ceil_div(s, r.positions);
    r.blocks_y = std::min({b, most_blocks_y, ceil_div(wanted_blocks, std::max<std::int64_t>(r.blocks_x, 1))});
    return r;
}

}  // namespace quadrille::cuda
