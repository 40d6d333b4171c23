// The gradient of a bias, and the squares of gradients.
#include "cpu/column_sum.hpp"
#include "cpu/kernels.hpp"

namespace quadrille {

namespace {

constexpr std::int64_t block_elements = 1024;
constexpr std::int64_t blocks_of(std::int64_t count) { return (count + block_elements - 1) / block_elements; }

template <class T>
double block_squares(const T* g, std::int64_t count) {
    double sum = 0.0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(load(g[i])) * static_cast<double>(load(g[i]));
    return sum;
}

// Of one stretch. `sums`: one for each block.
template <class T>
double stretch_squares(const T* g, std::int64_t count, double* sums) {
    const std::int64_t blocks = blocks_of(count);
#pragma omp parallel for schedule(static) if (count >= parallel_grain)
    for (std::int64_t b = 0; b < blocks; ++b) sums[b] = block_squares(g + b * block_elements, std::min(block_elements, count - b * block_elements));
    double total = 0.0;
    for (std::int64_t b = 0; b < blocks; ++b) total += sums[b];
    return total;
}

}  // namespace

void CpuKernels::column_sum(const void* dy, DType dy_type, void* db, DType db_type, std::int64_t rows, std::int64_t cols, bool accumulate, void*) {
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

std::int64_t CpuKernels::column_sum_workspace(std::int64_t, std::int64_t) const { return 0; }

// One stretch after another, in the same workspace.
void CpuKernels::sum_squares(const void* g, DType type, std::span<const Extent> stretches, double* sum, void* workspace) {
    double total = 0.0;
    with_type(type, [&]<class T>(T) {
        for (const Extent& s : stretches) total += stretch_squares(static_cast<const T*>(g) + s.offset, s.count, static_cast<double*>(workspace));
    });
    *sum = total;
}

std::int64_t CpuKernels::sum_squares_workspace(std::int64_t count, std::int64_t) const {
    return blocks_of(count) * static_cast<std::int64_t>(sizeof(double));
}

}  // namespace quadrille
