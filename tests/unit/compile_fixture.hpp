// Small models and the grids that the tests of the compiler share. Odd sizes: no extent divides by accident.
#pragma once
#include "compile/compile.hpp"
#include "compile/verify.hpp"
#include "compile_interpreter.hpp"
#include "variants.hpp"

namespace quadrille::test {

inline Config small_gpt(std::int64_t layers = 2) {
    Config c;
    c.model.num_layers = layers;
    c.model.hidden_size = 12;
    c.model.num_attention_heads = c.model.num_key_value_heads = 6;
    c.model.head_dim = 2;
    c.model.ffn_hidden_size = 12;
    c.model.vocab_size = 19;
    c.model.seq_length = 12;
    c.train.global_batch_size = 8;
    c.train.micro_batch_size = 2;
    c.train.gradient_accumulation_steps = 4;
    c.train.clip_grad = 0.1;
    return c;
}

inline Config small_llama(std::int64_t layers = 2) { return as_llama(small_gpt(layers), 2); }

// Wider: a layer's parameters fill several blocks of its flat buffer, so that every ZeRO slice holds some.
inline Config wide(Config c) {
    c.model.hidden_size = 24;
    c.model.head_dim = 4;
    c.model.ffn_hidden_size = 96;
    c.model.vocab_size = 61;
    return c;
}

// Scratch memory as some device might want it, so that it is laid out and checked.
inline std::int64_t some_workspace(const Program& p, const Op& op) {
    return op.kind == Kind::attention || op.kind == Kind::attention_dx || op.kind == Kind::matmul
               ? p.tables->bytes(p.tensors[static_cast<std::size_t>(p.inputs(op)[0])].type)
               : 0;
}

// Some scratch memory, and all that reaches beyond the device through host memory.
inline Workspace staged_workspace() {
    Workspace w = some_workspace;
    w.through_host = true;
    return w;
}

struct Subject {
    Config config;
    Compiled compiled;
    Program one;  // the same step for one rank
    Settings settings;

    explicit Subject(const Config& c, const Workspace& workspace = some_workspace)
        : config(c),
          compiled(compile(c, Purpose::training, workspace)),
          one(compile(serial(c), Purpose::training, {}).programs[0]) {
        settings.vocab = c.model.vocab_size;
    }
};

}  // namespace quadrille::test
