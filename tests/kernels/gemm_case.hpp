// One matrix product for the tests: random operands with gaps between their rows, and the sums in float64. Used by the tests gemm and cpu_gemm.
// Tolerance: an f32 sum of k products of standard normals is within 3e-6 sqrt(k) absolute and its type's rounding relative.
#pragma once
#include "device.hpp"
#include "reference.hpp"

namespace quadrille::test {

struct Case {
    std::int64_t m, n, k;
    bool a_transposed = false, b_transposed = false;
    DType type = DType::f32, c_type = DType::f32;
    std::int64_t gap = 0;  // elements between the end of a row and the next
};

struct Problem {
    explicit Problem(const Case& q) : c(q) {
        const std::int64_t a_rows = c.a_transposed ? c.k : c.m, b_rows = c.b_transposed ? c.n : c.k;
        lda = (c.a_transposed ? c.m : c.k) + c.gap, ldb = (c.b_transposed ? c.k : c.n) + c.gap, ldc = c.n + c.gap;
        a = operand((a_rows - 1) * lda + lda - c.gap, c.type, 1);
        b = operand((b_rows - 1) * ldb + ldb - c.gap, c.type, 2);
        before = operand((c.m - 1) * ldc + c.n, c.c_type, 3);
        bias = operand(c.n, c.type, 4);
    }
    Gemm gemm(void* out) const {
        Gemm g{.m = c.m, .n = c.n, .k = c.k};
        g.a = a.data(), g.a_type = c.type, g.lda = lda, g.a_transposed = c.a_transposed;
        g.b = b.data(), g.b_type = c.type, g.ldb = ldb, g.b_transposed = c.b_transposed;
        g.c = out, g.c_type = c.c_type, g.ldc = ldc;
        return g;
    }
    // What C must hold; between the rows, what it held before.
    Values reference(bool with_bias, bool accumulate) const {
        Values y = before.x;
        for (std::int64_t i = 0; i < c.m; ++i)
            for (std::int64_t j = 0; j < c.n; ++j) {
                double sum = (with_bias ? bias.x[static_cast<std::size_t>(j)] : 0.0);
                if (accumulate) sum += before.x[static_cast<std::size_t>(i * ldc + j)];
                for (std::int64_t l = 0; l < c.k; ++l)
                    sum += a.x[static_cast<std::size_t>(c.a_transposed ? l * lda + i : i * lda + l)] *
                           b.x[static_cast<std::size_t>(c.b_transposed ? j * ldb + l : l * ldb + j)];
                y[static_cast<std::size_t>(i * ldc + j)] = sum;
            }
        return y;
    }
    double tolerance() const { return 3e-6 * std::sqrt(static_cast<double>(std::max<std::int64_t>(1, c.k))); }

    Case c;
    std::int64_t lda, ldb, ldc;
    Operand a, b, before, bias;
};

// With workspace of the call's own.
inline void multiply(Gemm g) {
    Workspace workspace(kernels()->gemm_workspace(g));
    g.workspace = workspace.data();
    kernels()->gemm(g);
}

inline void multiply_gelu(Gemm g, void* y) {
    Workspace workspace(kernels()->gemm_workspace(g));
    g.workspace = workspace.data();
    kernels()->gemm_gelu(g, y);
}

struct Types {
    DType type, c_type;
};
constexpr Types combinations[] = {{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32},
                                  {DType::f16, DType::f16},   {DType::f16, DType::f32}};

inline Case large() { return {.m = 521, .n = 787, .k = 257}; }  // more than one block of rows and of columns

}  // namespace quadrille::test
