// Mutants of programs that reach beyond the device through host memory.
#include "compile_mutate.hpp"

#include <doctest.h>

using namespace quadrille;
using namespace quadrille::test;

TEST_CASE("moves between ranks, loads and scalars through host memory") {
    Config ring = on_grid(wide(small_gpt()), 1, 2, 1, 3);
    ring.tensor.sequence_parallel = true;
    ring.comm.bucket_size = 30000;
    ring.model.hidden_dropout = 0.1;
    Config hybrid = on_grid(wide(small_gpt()), 4, 1, 1, 1);
    hybrid.sharding.zero_stage = 2;
    hybrid.sharding.shard_size = 2;
    Config stages = on_grid(small_gpt(4), 2, 1, 2, 1);
    stages.sharding.zero_stage = 3;
    stages.pipeline.schedule = Schedule::zero_bubble;
    stages.train.precision = Precision::fp16;
    Config away = on_grid(wide(small_llama()), 2, 1, 1, 2);
    away.sequence.method = SequenceMethod::ulysses;
    away.data.mask_across_documents = true;
    away.sharding.zero_stage = 1;
    away.offload.optimizer = away.offload.gradients = away.offload.activations = OffloadTo::cpu;
    Config packed = on_grid(wide(small_gpt()), 2, 1, 1, 1);
    packed.compression = {CompressionMethod::bf16, 0.01, 8, true, {"embedding", "head"}};
    break_and_judge("through host memory", {{"tp 2 sp 3, megatron, rings, dropout", ring, staged_workspace()},
                                            {"stage 2, dp 4 as 2 x 2, tied", hybrid, staged_workspace()},
                                            {"stage 3, pp 2 dp 2, zero-bubble, fp16, tied", stages, staged_workspace()},
                                            {"stage 1, dp 2 sp 2, ulysses, documents, all but parameters on cpu", away, staged_workspace()},
                                            {"compressed gradients, dp 2", packed, staged_workspace()}});
}
