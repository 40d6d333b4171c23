// Mutants of programs whose training state is cut.
#include "compile_mutate.hpp"

#include <doctest.h>

using namespace quadrille;
using namespace quadrille::test;

TEST_CASE("training state cut over dp and sp") {
    const auto cut = [](Config c, int stage, int shard_size) {
        c.sharding.zero_stage = stage;
        c.sharding.shard_size = shard_size;
        c.comm.bucket_size = 30000;  // some units travel together, some alone
        return c;
    };
    const Config hybrid = cut(on_grid(wide(small_gpt()), 4, 1, 1, 1), 1, 2);
    Config half = cut(on_grid(wide(small_llama()), 2, 1, 1, 2), 2, 2);
    half.train.precision = half.train.gradient_dtype = Precision::fp16;
    const Config copies = cut(on_grid(wide(small_gpt()), 4, 1, 1, 1), 2, 2);
    Config interleaved = cut(on_grid(small_gpt(4), 2, 1, 2, 1), 3, 2);
    interleaved.pipeline.schedule = Schedule::interleaved;
    interleaved.pipeline.virtual_stages = 2;
    Config remade = cut(on_grid(wide(small_llama()), 1, 2, 1, 3), 3, 1);
    remade.recompute.granularity = Granularity::full;
    remade.model.hidden_dropout = 0.1;
    Config kept = cut(on_grid(small_gpt(4), 2, 1, 2, 1), 3, 2);
    kept.pipeline.schedule = Schedule::zero_bubble;
    kept.sharding.keep_gathered = true;
    kept.sharding.prefetch = 2;
    Config adapters = cut(on_grid(wide(small_gpt(4)), 2, 2, 2, 1), 2, 2);
    adapters.tensor.sequence_parallel = true;
    adapters.lora = {2, 6, {"attention", "layers.3"}};
    Config stale = cut(on_grid(wide(small_gpt()), 2, 1, 1, 1), 1, 2);
    stale.comm.staleness = 1;
    break_and_judge("zero",
                    {{"stage 1, dp 4 as 2 x 2, tied", hybrid},
                     {"stage 2, dp 2 sp 2, fp16", half},
                     {"stage 2, dp 4 as 2 x 2", copies},
                     {"stage 3, pp 2 dp 2, interleaved, tied", interleaved},
                     {"stage 3, tp 2 sp 3, full recompute, dropout", remade},
                     {"stage 3, pp 2 dp 2, zero-bubble, kept, tied", kept},
                     {"stage 2, pp 2 tp 2 dp 2, adapters", adapters},
                     {"stage 1, dp 2, stale", stale}});
}
