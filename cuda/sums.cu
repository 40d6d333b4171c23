// The gradient of a bias.
#include "cuda/column_sums.cuh"
#include "cuda/kernels.hpp"
#include "cuda/with_type.hpp"

namespace quadrille {

using namespace cuda;

namespace {

template <class T, int n>
struct Elements {
    const T* dy;
    std::int64_t cols;
    __device__ __forceinline__ void operator()(std::int64_t row, std::int64_t column, float (&sum)[1][n]) const {
        const auto x = load_values<n>(dy + row * cols + column);
#pragma unroll
        for (int i = 0; i < n; ++i) sum[0][i] += x.x[i];
    }
};

}  // namespace

std::int64_t CudaKernels::column_sum_workspace(std::int64_t rows, std::int64_t cols) const {
    return column_sums_floats(1, sum_groups(rows, cols), cols) * static_cast<std::int64_t>(sizeof(float));
}

void CudaKernels::column_sum(const void* dy, DType dy_type, void* db, DType db_type, std::int64_t rows, std::int64_t cols, bool accumulate,
                             void* workspace) {
    const ColumnSums<1> sums{{db}, db_type, accumulate};
    auto* const partial = static_cast<float*>(workspace);
    with_type(dy_type, [&]<class T>(T) {
        constexpr int n = pack_size<T>;
        const auto* const p = static_cast<const T*>(dy);
        if (packable(p) && cols % n == 0)
            sum_columns<1, n>(stream_, Elements<T, n>{p, cols}, rows, cols, sums, partial);
        else
            sum_columns<1, 1>(stream_, Elements<T, 1>{p, cols}, rows, cols, sums, partial);
    });
}

}  // namespace quadrille
