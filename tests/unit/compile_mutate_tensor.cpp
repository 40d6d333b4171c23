// Mutants of programs cut over tp, sp and dp.
#include "compile_mutate.hpp"

#include <doctest.h>

using namespace quadrille;
using namespace quadrille::test;

TEST_CASE("tensor and data parallel") {
    Config buckets = on_grid(wide(small_gpt()), 2, 2, 1, 1);
    buckets.comm.bucket_size = 60000;
    Config megatron = on_grid(small_gpt(), 1, 2, 1, 2);
    megatron.tensor.sequence_parallel = true;
    megatron.model.hidden_dropout = megatron.model.attention_dropout = 0.1;
    Config replicated = on_grid(small_llama(), 1, 6, 1, 1);
    replicated.tensor.sequence_parallel = true;
    Config grouped = on_grid(small_llama(), 1, 4, 1, 1);
    grouped.model.num_attention_heads = 4;
    Config half = on_grid(small_llama(), 2, 2, 1, 1);
    half.train.precision = half.train.gradient_dtype = Precision::fp16;
    half.comm.overlap = false;
    break_and_judge("tensor and data parallel",
                    {{"tp 2 dp 2, buckets, tied", buckets},
                     {"tp 2 sp 2, Megatron, ring, dropout", megatron},
                     {"tp 2 x 3, Megatron, grouped heads", replicated},
                     {"tp 2 x 2, grouped heads", grouped},
                     {"tp 2 dp 2, fp16, no overlap", half}});
}
