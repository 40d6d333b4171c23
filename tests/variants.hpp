// Inputs made of other inputs: what tests of several rooms vary.
#pragma once
#include "config/config.hpp"

#include <algorithm>

namespace quadrille::test {

// Llama's shape of the same model: RMS norms, swiglu, rotary positions, grouped heads, no biases, an output table of its own.
inline Config as_llama(Config c, std::int64_t key_value_heads) {
    c.model.num_key_value_heads = key_value_heads;
    c.model.normalization = Normalization::rmsnorm;
    c.model.activation = Activation::swiglu;
    c.model.position_embedding = PositionEmbedding::rope;
    c.model.bias = false;
    c.model.tie_word_embeddings = false;
    return c;
}

// The same batch on another grid: dp takes its sequences from the microbatch first, then from the accumulation.
inline Config on_grid(Config c, int dp, int tp, int pp, int sp) {
    c.grid.dp = dp;
    c.grid.tp = tp;
    c.grid.pp = pp;
    c.grid.sp = sp;
    c.train.micro_batch_size = std::max<std::int64_t>(1, c.train.micro_batch_size / dp);
    c.train.gradient_accumulation_steps = c.train.global_batch_size / c.train.micro_batch_size / dp;
    return c;
}

}  // namespace quadrille::test
