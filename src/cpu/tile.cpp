#include "cpu/tile.hpp"
#include "cpu/element.hpp"
#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

namespace quadrille {
namespace {

// The block of c that stays in registers: 6×4 of AVX-512's 32, 6×2 of the 16 elsewhere.
constexpr int most_rows = 6;
constexpr int most_vectors = vector_floats == 16 ? 4 : 2;

template <int rows, int vectors>
void product_block(const TileProduct& p, const float* a, const float* b, float* c) {
    Floats sum[rows][vectors];
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i)
#pragma GCC unroll 8
        for (int j = 0; j < vectors; ++j)
            sum[i][j] = p.accumulate ? load(c + i * p.c_row + j * vector_floats) : Floats{};
    for (std::int64_t k = 0; k < p.k; ++k) {
        Floats b_k[vectors];
#pragma GCC unroll 8
        for (int j = 0; j < vectors; ++j) b_k[j] = load(b + j * vector_floats);
#pragma GCC unroll 8
        for (int i = 0; i < rows; ++i) {
            const Floats a_ik = broadcast(a[i * p.a_row]);
#pragma GCC unroll 8
            for (int j = 0; j < vectors; ++j) sum[i][j] = multiply_add(a_ik, b_k[j], sum[i][j]);
        }
        a += p.a_step;
        b += p.b_row;
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i)
#pragma GCC unroll 8
        for (int j = 0; j < vectors; ++j) store(c + i * p.c_row + j * vector_floats, sum[i][j]);
}

using Block = void (*)(const TileProduct&, const float*, const float*, float*);

template <int... index>
constexpr auto blocks(std::integer_sequence<int, index...>) {
    return std::array<Block, sizeof...(index)>{product_block<index / most_vectors + 1, index % most_vectors + 1>...};
}
constexpr auto block_table = blocks(std::make_integer_sequence<int, most_rows * most_vectors>{});

// The low or the high halves of a and b, lanes alternating: a0 b0 a1 b1 ...
template <int... lane>
Floats interleave_low(Floats a, Floats b, std::integer_sequence<int, lane...>) {
    return __builtin_shufflevector(a, b, (lane / 2 + lane % 2 * vector_floats)...);
}
template <int... lane>
Floats interleave_high(Floats a, Floats b, std::integer_sequence<int, lane...>) {
    return __builtin_shufflevector(a, b, (vector_floats / 2 + lane / 2 + lane % 2 * vector_floats)...);
}

// Transposes one vector_floats² square: log2 rounds of a perfect shuffle of the rows.
void transpose_square(const float* from, std::int64_t from_row, float* to, std::int64_t to_row) {
    constexpr int w = vector_floats;
    constexpr std::make_integer_sequence<int, w> lanes;
    Floats x[w], y[w];
#pragma GCC unroll 16
    for (int i = 0; i < w; ++i) x[i] = load(from + i * from_row);
#pragma GCC unroll 4
    for (int round = 1; round < w; round *= 2) {
#pragma GCC unroll 16
        for (int i = 0; i < w / 2; ++i) {
            y[2 * i] = interleave_low(x[i], x[i + w / 2], lanes);
            y[2 * i + 1] = interleave_high(x[i], x[i + w / 2], lanes);
        }
#pragma GCC unroll 16
        for (int i = 0; i < w; ++i) x[i] = y[i];
    }
#pragma GCC unroll 16
    for (int i = 0; i < w; ++i) store(to + i * to_row, x[i]);
}

template <class T>
void load_row(const T* from, std::int64_t d, float* to, std::int64_t width) {
    std::int64_t j = 0;
    for (; j + vector_floats <= d; j += vector_floats) store(to + j, load(from + j));
    for (; j < d; ++j) to[j] = static_cast<float>(from[j]);
    for (; j < width; ++j) to[j] = 0.0f;
}

template <class T>
void store_row(const float* from, float scale, T* to, std::int64_t d, bool accumulate) {
    std::int64_t j = 0;
    for (; j + vector_floats <= d; j += vector_floats) {
        const Floats x = scale * load(from + j);
        store(to + j, accumulate ? load(to + j) + x : x);
    }
    for (; j < d; ++j) {
        const float x = scale * from[j];
        to[j] = T(accumulate ? static_cast<float>(to[j]) + x : x);
    }
}

}  // namespace

void tile_product(const TileProduct& p) {
    constexpr std::int64_t most_columns = most_vectors * vector_floats;
    for (std::int64_t j = 0; j < p.n; j += most_columns) {
        const int vectors = static_cast<int>(std::min(most_columns, p.n - j) / vector_floats);
        for (std::int64_t i = 0; i < p.m; i += most_rows) {
            const int rows = static_cast<int>(std::min<std::int64_t>(most_rows, p.m - i));
            block_table[static_cast<std::size_t>((rows - 1) * most_vectors + vectors - 1)](p, p.a + i * p.a_row, p.b + j,
                                                                                         p.c + i * p.c_row + j);
        }
    }
}

void tile_transpose(const float* from, std::int64_t from_row, float* to, std::int64_t to_row, std::int64_t rows, std::int64_t cols) {
    for (std::int64_t i = 0; i < rows; i += vector_floats)
        for (std::int64_t j = 0; j < cols; j += vector_floats)
            transpose_square(from + i * from_row + j, from_row, to + j * to_row + i, to_row);
}

void load_rows(const void* from, DType type, std::int64_t stride, std::int64_t rows, std::int64_t d, float* to, std::int64_t to_row) {
    with_type(type, [&]<class T>(T) {
        for (std::int64_t i = 0; i < rows; ++i) load_row(static_cast<const T*>(from) + i * stride, d, to + i * to_row, to_row);
    });
}

void store_rows(const float* from, std::int64_t from_row, float scale, void* to, DType type, std::int64_t stride,
                std::int64_t rows, std::int64_t d, bool accumulate) {
    with_type(type, [&]<class T>(T) {
        for (std::int64_t i = 0; i < rows; ++i)
            store_row(from + i * from_row, scale, static_cast<T*>(to) + i * stride, d, accumulate && std::is_same_v<T, float>);
    });
}

}  // namespace quadrille
