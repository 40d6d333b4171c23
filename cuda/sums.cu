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
    return group_sums_bytes(1, rows, cols);
}

void CudaKernels::column_sum(const void* dy, DType dy_type, void* db, DType db_type, std::int64_t rows, std::int64_t cols, bool accumulate,
                             void* workspace) {
    const RowGroups in = row_groups(rows, cols);
    auto* const partial = static_cast<float*>(workspace);
    with_type(dy_type, [&]<class T>(T) {
        constexpr int n = pack_size<T>;
        const T* const p = of<T>(dy);
        if (packable(p) && cols % n == 0)
            sum_groups_of<1, n>(stream_, Elements<T, n>{p, cols}, in, 0, in.groups, partial);
        else
            sum_groups_of<1, 1>(stream_, Elements<T, 1>{p, cols}, in, 0, in.groups, partial);
    });
    add_all_groups(stream_, in, partial, ColumnSums<1>{{db}, db_type, accumulate});
}

}  // namespace quadrille
