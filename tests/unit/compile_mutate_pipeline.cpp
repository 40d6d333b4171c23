// Mutants of pipelines.
#include "compile_mutate.hpp"

#include <doctest.h>

using namespace quadrille;
using namespace quadrille::test;

TEST_CASE("pipelines") {
    const Config one_f_one_b = on_grid(small_gpt(4), 2, 1, 2, 1);
    Config interleaved = on_grid(small_gpt(4), 1, 2, 2, 1);
    interleaved.pipeline.schedule = Schedule::interleaved;
    interleaved.pipeline.virtual_stages = 2;
    interleaved.model.hidden_dropout = 0.1;
    Config zero_bubble = on_grid(small_llama(4), 2, 1, 4, 1);
    zero_bubble.pipeline.schedule = Schedule::zero_bubble;
    Config gpipe = on_grid(small_gpt(4), 1, 1, 4, 1);
    gpipe.pipeline.schedule = Schedule::gpipe;
    Config half = on_grid(small_gpt(3), 1, 1, 3, 1);
    half.pipeline.schedule = Schedule::zero_bubble;
    half.train.precision = Precision::fp16;
    Config remade = on_grid(small_gpt(4), 1, 2, 2, 1);
    remade.pipeline.schedule = Schedule::zero_bubble;
    remade.tensor.sequence_parallel = true;
    remade.recompute.granularity = Granularity::selective;
    remade.model.hidden_dropout = 0.1;
    break_and_judge("pipelines",
                    {{"pp 2 dp 2, 1f1b, tied", one_f_one_b},
                     {"pp 2 tp 2, interleaved, dropout", interleaved},
                     {"pp 4 dp 2, zero-bubble", zero_bubble},
                     {"pp 4, gpipe, tied", gpipe},
                     {"pp 3, zero-bubble, fp16, tied", half},
                     {"pp 2 tp 2, zero-bubble, Megatron, selective recompute, dropout", remade}});
}
