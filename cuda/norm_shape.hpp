// How the rows of a norm are shared among threads. Pure.
#pragma once
#include "base/rounding.hpp"

#include <algorithm>
#include <cstdint>

namespace quadrille::cuda {

constexpr int norm_block = 256;  // threads of a block of one-warp rows

struct NormShape {
    bool held = false;              // in registers
    int row_threads = 0, rows = 0;  // of a block
};

// Rows of h elements, `pack` of them 16 bytes; `most_packs` packs are what a thread may hold, `most_threads` how many threads hold so much.
constexpr NormShape norm_shape(std::int64_t h, std::int64_t pack, bool packable, int most_packs, int most_threads) {
    constexpr int warp = 32;
    const std::int64_t warps = packable ? ceil_div(h / pack, std::int64_t{most_packs} * warp) : ceil_div(h, std::int64_t{4} * warp);
    const std::int64_t threads = std::max<std::int64_t>(warps, 1) * warp;
    NormShape shape;
    shape.held = packable && threads <= most_threads;
    shape.row_threads = static_cast<int>(std::min<std::int64_t>(threads, most_threads));
    shape.rows = shape.row_threads == warp ? norm_block / warp : 1;
    return shape;
}

}  // namespace quadrille::cuda
