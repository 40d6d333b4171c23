// Products against float64 sums: every type and transposition, odd sizes, strides wider than the rows, bias, accumulation, gelu.
#include "gemm_case.hpp"

using namespace quadrille;
using namespace quadrille::test;

namespace {

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

TEST_CASE("gemm_gelu keeps the pre-activation and gives its gelu, of before or after it was rounded") {
    for (const DType type : storage_types)
        for (const auto& [n, gap] : {std::pair<std::int64_t, std::int64_t>{3, 2}, {257, 2}, {800, 2}, {800, 0}, {797, 3}})
            for (const bool with_bias : {false, true}) {
                const Problem p({60, n, 61, false, false, type, type, gap});
                Stored z = p.before.stored, y = p.before.stored;
                Gemm g = p.gemm(z.data());
                if (with_bias) g.bias = p.bias.data(), g.bias_type = type;
                multiply_gelu(g, y.data());
                CHECK(error(z, p.reference(with_bias, false), rounding(type), p.tolerance()) <= 1.0);
                const Values pre = values(z), got = values(y);
                double worst = 0.0;
                for (std::size_t i = 0; i < pre.size(); ++i) {
                    const double x = pre[i];
                    if (static_cast<std::int64_t>(i) % (n + gap) >= n) {  // a gap: as before
                        CHECK(got[i] == p.before.x[i]);
                        continue;
                    }
                    const double want = 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
                    // gelu's slope is at most 1.13: so much of the rounding of z is in y.
                    const double bound = (rounding(type) + 4e-7) * std::abs(want) + 1.13 * rounding(type) * std::abs(x) + 2e-6;
                    worst = std::max(worst, std::abs(got[i] - want) / bound);
                }
                CHECK(worst <= 1.0);
            }
}

TEST_CASE("the same bits again, on any number of threads") {
    for (const auto& [type, c_type] : combinations) {
        Case c = large();
        c.type = type, c.c_type = c_type;
        const Problem p(c);
        CHECK(same_bits_on_any_threads([&] {
            Stored out = p.before.stored;
            multiply(p.gemm(out.data()));
            return out.bytes;
        }));
    }
}

TEST_CASE("impossible products are refused") {
    float x[4] = {};
    Gemm g{.m = 1, .n = 1, .k = 1};
    g.a = g.b = x, g.c = x, g.lda = g.ldb = g.ldc = 1;
    g.b_type = DType::bf16;
    CHECK_THROWS(kernels()->gemm(g));
    g.a_type = DType::f16;
    CHECK_THROWS(kernels()->gemm(g));
    g.a_type = DType::f32;
    g.b_type = DType::f32, g.accumulate = true, g.bias = x;
    CHECK_THROWS(kernels()->gemm(g));
}
