// The gradient of a bias.
#include "cpu/column_sum.hpp"
#include "cpu/elementwise.hpp"

namespace quadrille {

void column_sum(const void* dy, DType dy_type, void* db, DType db_type, std::int64_t rows, std::int64_t cols, bool accumulate) {
    with_type(dy_type, [&]<class T>(T) {
        const T* p = static_cast<const T*>(dy);
        sum_over_rows<1>(
            rows, cols,
            [=](std::int64_t r, std::int64_t first, std::int64_t width, float(*out)[sum_columns]) {
                const T* row = p + r * cols + first;
#pragma omp simd
                for (std::int64_t c = 0; c < width; ++c) out[0][c] += load(row[c]);
            },
            [=](std::int64_t first, std::int64_t width, const float(*total)[sum_columns]) {
                store_sum(db, db_type, first, width, total[0], accumulate);
            });
    });
}

}  // namespace quadrille
