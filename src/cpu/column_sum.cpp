// The gradient of a bias.
#include "cpu/column_sum.hpp"
#include "cpu/elementwise.hpp"

namespace quadrille {

void column_sum(const void* dy, DType dy_type, void* db, DType db_type, std::int64_t rows, std::int64_t cols, bool accumulate) {
    with_type(dy_type, [&]<class T>(T) {
        const T* p = static_cast<const T*>(dy);
        sum_over_rows(
            rows, cols,
            [=](std::int64_t r, std::int64_t first, std::int64_t width, float* out) {
                const T* row = p + r * cols + first;
#pragma omp simd
                for (std::int64_t c = 0; c < width; ++c) out[c] += load(row[c]);
            },
            [=](std::int64_t first, std::int64_t width, const float* total) {
                store_sum(db, db_type, first, width, total, accumulate);
            });
    });
}

}  // namespace quadrille
