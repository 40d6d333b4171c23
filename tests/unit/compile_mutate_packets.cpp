// Mutants of programs that compress gradients.
#include "compile_mutate.hpp"

#include <doctest.h>

using namespace quadrille;
using namespace quadrille::test;

TEST_CASE("compressed gradients") {
    const auto packed = [](Config c, CompressionMethod method, bool feedback) {
        c.compression = {method, 0.01, 8, feedback, {"embedding", "head"}};
        return c;
    };
    Config whole = packed(on_grid(wide(small_gpt(3)), 2, 1, 1, 1), CompressionMethod::bf16, true);
    whole.comm.bucket_size = 9000;
    Config slices = packed(on_grid(wide(small_llama(3)), 2, 1, 1, 2), CompressionMethod::qsgd, true);
    slices.sharding.zero_stage = 2;
    slices.train.precision = Precision::fp16;
    Config copies = packed(on_grid(wide(small_gpt(3)), 4, 1, 1, 1), CompressionMethod::fp16, true);
    copies.sharding = {3, 2, 1, false};
    Config plain = packed(on_grid(small_gpt(4), 2, 1, 2, 1), CompressionMethod::fp16, false);
    plain.compression.exclude = {};
    Config away = packed(on_grid(wide(small_gpt(3)), 2, 1, 1, 1), CompressionMethod::bf16, true);
    away.sharding.zero_stage = 1;
    away.offload.optimizer = OffloadTo::cpu;
    break_and_judge("compressed gradients", {{"dp 2, bf16, buckets", whole},
                                             {"stage 2, dp 2 sp 2, qsgd, fp16", slices},
                                             {"stage 3, dp 4 as 2 x 2, fp16 packets", copies},
                                             {"pp 2 dp 2, fp16 packets without feedback, tied", plain},
                                             {"stage 1, dp 2, bf16, optimizer on cpu", away}});
}
