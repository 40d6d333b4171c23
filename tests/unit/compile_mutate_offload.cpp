// Mutants of programs whose training state and activations live in other tiers.
#include "compile_mutate.hpp"

#include <doctest.h>

using namespace quadrille;
using namespace quadrille::test;

TEST_CASE("training state and activations in host memory and on disk") {
    Config optimizer = on_grid(small_gpt(), 1, 1, 1, 1);
    optimizer.offload.optimizer = OffloadTo::cpu;
    Config all = on_grid(wide(small_gpt()), 2, 1, 1, 1);
    all.comm.bucket_size = 30000;
    all.offload.optimizer = all.offload.parameters = OffloadTo::nvme;
    all.offload.gradients = OffloadTo::cpu;
    Config cut = on_grid(wide(small_llama()), 2, 2, 1, 1);
    cut.train.precision = Precision::fp16;
    cut.sharding.zero_stage = 2;
    cut.offload.optimizer = OffloadTo::nvme;
    cut.offload.gradients = OffloadTo::cpu;
    Config stages = on_grid(small_gpt(4), 1, 1, 2, 1);
    stages.offload.parameters = stages.offload.gradients = OffloadTo::cpu;
    Config activations = on_grid(wide(small_llama()), 1, 1, 1, 2);
    activations.offload.activations = OffloadTo::nvme;
    activations.recompute.granularity = Granularity::selective;
    activations.model.hidden_dropout = 0.1;
    break_and_judge("offload", {{"optimizer on cpu", optimizer},
                                {"optimizer and parameters on nvme, gradients on cpu, dp 2", all},
                                {"stage 2, dp 2 tp 2, fp16, optimizer on nvme, gradients on cpu", cut},
                                {"parameters and gradients on cpu, pp 2, tied", stages},
                                {"activations on nvme, sp 2, selective recompute, dropout", activations}});
}
