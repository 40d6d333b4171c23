// What is the CPU's own in matrix products: oneDNN's bf16 products, and calls from inside a parallel region.
#include "cpu/gemm_native.hpp"
#include "gemm_case.hpp"

using namespace quadrille;
using namespace quadrille::test;

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

TEST_CASE("the same bits from inside a parallel region") {
    for (const auto& [type, c_type] : combinations) {
        Case c = large();
        c.type = type, c.c_type = c_type;
        const Problem p(c);
        auto run = [&] {
            Stored out = p.before.stored;
            multiply(p.gemm(out.data()));
            return out.bytes;
        };
        const auto outside = run();
        int different = 0;
#pragma omp parallel num_threads(3) reduction(+ : different)
        different += run() != outside;
        CHECK(different == 0);
    }
}
