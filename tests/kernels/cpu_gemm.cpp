// Products against float64 sums: every type and transposition, odd sizes, strides wider than the rows, bias, accumulation, gelu.
// Tolerance: an f32 sum of k products of standard normals is within 3e-6 sqrt(k) absolute and its type's rounding relative.
#include "cpu/gemm.hpp"
#include "cpu/gemm_native.hpp"
#include "kernels/reference.hpp"

using namespace quadrille;
using namespace quadrille::test;

namespace {

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
void multiply(Gemm g) {
    Workspace workspace(gemm_workspace(g, omp_get_max_threads()));
    g.workspace = workspace.data();
    gemm(g);
}

void multiply_gelu(Gemm g, void* y) {
    Workspace workspace(gemm_workspace(g, omp_get_max_threads()));
    g.workspace = workspace.data();
    gemm_gelu(g, y);
}

void check(const Case& c) {
    CAPTURE(c.m);
    CAPTURE(c.n);
    CAPTURE(c.k);
    CAPTURE(c.a_transposed);
    CAPTURE(c.b_transposed);
    CAPTURE(name_of(c.type));
    CAPTURE(name_of(c.c_type));
    const Problem p(c);
    Stored out = p.before.stored;
    multiply(p.gemm(out.data()));
    CHECK(error(out, p.reference(false, false), rounding(c.c_type), p.tolerance()) <= 1.0);

    out = p.before.stored;
    Gemm with_bias = p.gemm(out.data());
    with_bias.bias = p.bias.data(), with_bias.bias_type = c.type;
    multiply(with_bias);
    CHECK(error(out, p.reference(true, false), rounding(c.c_type), p.tolerance()) <= 1.0);

    if (c.c_type != DType::f32) return;
    out = p.before.stored;
    Gemm accumulating = p.gemm(out.data());
    accumulating.accumulate = true;
    multiply(accumulating);
    CHECK(error(out, p.reference(false, true), rounding(c.c_type), p.tolerance()) <= 1.0);
}

struct Types {
    DType type, c_type;
};
constexpr Types combinations[] = {{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32},
                                  {DType::f16, DType::f16},   {DType::f16, DType::f32}};

Case large() { return {.m = 521, .n = 787, .k = 257}; }  // more than one block of rows and of columns

}  // namespace

TEST_CASE("products of odd sizes") {
    for (const auto& [type, c_type] : combinations)
        for (const std::int64_t m : odd_sizes)
            for (const std::int64_t n : odd_sizes)
                for (const std::int64_t k : {1, 3, 60})
                    for (int transposed = 0; transposed < 4; ++transposed)
                        check({m, n, k, (transposed & 1) != 0, (transposed & 2) != 0, type, c_type, 0});
}

TEST_CASE("products with wide strides leave the gaps alone") {
    for (const auto& [type, c_type] : combinations)
        for (int transposed = 0; transposed < 4; ++transposed)
            check({60, 61, 257, (transposed & 1) != 0, (transposed & 2) != 0, type, c_type, 5});
}

TEST_CASE("a product over nothing is zero: the bias, or what was there") {
    for (const auto& [type, c_type] : combinations)
        for (int transposed = 0; transposed < 4; ++transposed) check({5, 3, 0, (transposed & 1) != 0, (transposed & 2) != 0, type, c_type, 0});
    const Problem p({5, 3, 0});
    Stored z = p.before.stored, y = p.before.stored;
    Gemm g = p.gemm(z.data());
    g.bias = p.bias.data(), g.bias_type = DType::f32;
    multiply_gelu(g, y.data());
    CHECK(error(z, p.reference(true, false), rounding(DType::f32), p.tolerance()) <= 1.0);
    Values want = values(z);
    for (double& x : want) x = 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
    CHECK(error(y, want, 4e-7, 2e-6) <= 1.0);
}

TEST_CASE("products of several blocks") {
    for (const auto& [type, c_type] : combinations)
        for (int transposed = 0; transposed < 4; ++transposed) {
            Case c = large();
            c.type = type, c.c_type = c_type, c.a_transposed = transposed & 1, c.b_transposed = transposed & 2;
            c.k = 61;
            check(c);
            c.m = 20, c.n = 30, c.k = 1603;
            check(c);
        }
}

TEST_CASE("oneDNN's own bf16 products, which only CPUs with a fast bf16 unit take by themselves") {
    for (const DType c_type : {DType::bf16, DType::f32})
        for (int transposed = 0; transposed < 4; ++transposed)
            for (const std::int64_t gap : {0, 5}) {
                const Problem p({60, 61, 257, (transposed & 1) != 0, (transposed & 2) != 0, DType::bf16, c_type, gap});
                for (int repeat = 0; repeat < 2; ++repeat) {  // the second call finds the primitive
                    Stored out = p.before.stored;
                    gemm_native(p.gemm(out.data()));
                    CHECK(error(out, p.reference(false, false), rounding(c_type), p.tolerance()) <= 1.0);
                }
                Stored out = p.before.stored;
                Gemm with_bias = p.gemm(out.data());
                with_bias.bias = p.bias.data(), with_bias.bias_type = DType::bf16;
                gemm_native(with_bias);
                CHECK(error(out, p.reference(true, false), rounding(c_type), p.tolerance()) <= 1.0);
                if (c_type != DType::f32) continue;
                out = p.before.stored;
                Gemm accumulating = p.gemm(out.data());
                accumulating.accumulate = true;
                gemm_native(accumulating);
                CHECK(error(out, p.reference(false, true), rounding(c_type), p.tolerance()) <= 1.0);
            }
}

TEST_CASE("gemm_gelu keeps the pre-activation and gives gelu of what it stored") {
    for (const DType type : storage_types)
        for (const std::int64_t n : {std::int64_t{3}, std::int64_t{257}, std::int64_t{800}}) {
            const Problem p({60, n, 61, false, false, type, type, 2});
            Stored z = p.before.stored, y = p.before.stored;
            Gemm g = p.gemm(z.data());
            g.bias = p.bias.data(), g.bias_type = type;
            multiply_gelu(g, y.data());
            CHECK(error(z, p.reference(true, false), rounding(type), p.tolerance()) <= 1.0);
            Values want = values(z);
            for (std::int64_t i = 0; i < z.size(); ++i) {
                double& x = want[static_cast<std::size_t>(i)];
                if (i % (n + 2) >= n) continue;  // a gap: as before
                x = 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
            }
            CHECK(error(y, want, rounding(type) + 4e-7, 2e-6) <= 1.0);
        }
}

TEST_CASE("the same bits on any number of threads, from inside a parallel region and again") {
    for (const auto& [type, c_type] : combinations) {
        Case c = large();
        c.type = type, c.c_type = c_type;
        const Problem p(c);
        auto run = [&] {
            Stored out = p.before.stored;
            multiply(p.gemm(out.data()));
            return out.bytes;
        };
        CHECK(same_bits_on_any_threads(run));
        const auto outside = run();
        int different = 0;
#pragma omp parallel num_threads(3) reduction(+ : different)
        different += run() != outside;
        CHECK(different == 0);
    }
}

TEST_CASE("impossible products are refused") {
    float x[4] = {};
    Gemm g{.m = 1, .n = 1, .k = 1};
    g.a = g.b = x, g.c = x, g.lda = g.ldb = g.ldc = 1;
    g.b_type = DType::bf16;
    CHECK_THROWS(gemm(g));
    g.a_type = DType::f16;
    CHECK_THROWS(gemm(g));
    g.a_type = DType::f32;
    g.b_type = DType::f32, g.accumulate = true, g.bias = x;
    CHECK_THROWS(gemm(g));
}
