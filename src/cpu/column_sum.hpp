// Sums over rows, column by column, in an order that the number of threads cannot change: f32 sums over blocks of 64 rows,
// blocks added in order. Threads share the columns, never the rows. For src/cpu only.
#pragma once
#include "cpu/element.hpp"
#include <algorithm>
#include <cstdint>
#include <omp.h>

namespace quadrille {

constexpr std::int64_t sum_rows = 64, sum_columns = 512;

// `outputs` sums at once. term(row, first, width, out) adds the row's terms of columns [first, first + width) to out[0 .. outputs);
// finish(first, width, total) receives each finished piece of at most sum_columns columns.
template <int outputs, class Term, class Finish>
void sum_over_rows(std::int64_t rows, std::int64_t cols, Term term, Finish finish) {
#pragma omp parallel if (rows * cols >= parallel_grain)
    {
        // Whole cache lines of columns to each thread.
        const std::int64_t lines = (cols + 31) / 32, team = omp_get_num_threads(), me = omp_get_thread_num();
        const std::int64_t begin = lines * me / team * 32, end = std::min(cols, lines * (me + 1) / team * 32);
        for (std::int64_t first = begin; first < end; first += sum_columns) {
            const std::int64_t width = std::min(sum_columns, end - first);
            float total[outputs][sum_columns] = {};
            for (std::int64_t row = 0; row < rows; row += sum_rows) {
                float block[outputs][sum_columns] = {};
                for (std::int64_t r = row; r < std::min(rows, row + sum_rows); ++r) term(r, first, width, block);
                for (int o = 0; o < outputs; ++o)
                    for (std::int64_t c = 0; c < width; ++c) total[o][c] += block[o][c];
            }
            finish(first, width, total);
        }
    }
}

// out[0..width) = total, or += total
inline void store_sum(void* out, DType t, std::int64_t first, std::int64_t width, const float* total, bool accumulate) {
    with_type(t, [&]<class T>(T) {
        T* p = static_cast<T*>(out) + first;
        for (std::int64_t c = 0; c < width; ++c) store(p[c], accumulate ? load(p[c]) + total[c] : total[c]);
    });
}

}  // namespace quadrille
