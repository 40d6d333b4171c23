// Every grid and strategy gives the numbers of the program for one rank, in float64, to 1e-10; and that program's gradients are
// the loss's, by central differences. Independent of the kernels and of the verifier.
#include "compile_strategies.hpp"

#include <cmath>

using namespace quadrille;
using namespace quadrille::test;

namespace {

std::vector<Strategy> strategies() {
    const auto zero_bubble = scheduled(Schedule::zero_bubble), gpipe = scheduled(Schedule::gpipe);
    return {
        {"one rank", small_gpt()},
        {"tp 2", on_grid(small_gpt(), 1, 2, 1, 1)},
        {"tp 3", on_grid(small_gpt(), 1, 3, 1, 1)},
        {"tp 2 llama bf16", with(on_grid(small_llama(), 1, 2, 1, 1), in_bf16)},
        {"tp 2 megatron", with(on_grid(small_gpt(), 1, 2, 1, 1), megatron)},
        {"tp 6 as 2 x 3 llama", on_grid(small_llama(), 1, 6, 1, 1)},
        {"tp 6 as 2 x 3 llama megatron", with(on_grid(small_llama(), 1, 6, 1, 1), megatron)},
        {"dp 4", on_grid(small_gpt(), 4, 1, 1, 1)},
        {"dp 2 buckets", with(on_grid(small_gpt(), 2, 1, 1, 1), [](Config& c) { c.comm.bucket_size = 20000; })},
        {"dp 2 no overlap", with(on_grid(small_gpt(), 2, 1, 1, 1), [](Config& c) { c.comm.overlap = false; })},
        {"sp 2 ring", on_grid(small_gpt(), 1, 1, 1, 2)},
        {"sp 3 ring contiguous", with(on_grid(small_gpt(), 1, 1, 1, 3), contiguous)},
        {"sp 3 ring documents dropout", with(with(on_grid(small_llama(), 1, 1, 1, 3), documents), dropped)},
        {"sp 2 ulysses", with(on_grid(small_gpt(), 1, 1, 1, 2), ulysses)},
        {"sp 3 ulysses llama", with(on_grid(small_llama(), 1, 1, 1, 3), ulysses)},
        {"sp 3 tp 2 ulysses megatron dropout", with(with(with(on_grid(small_gpt(), 1, 2, 1, 3), ulysses), megatron), dropped)},
        {"sp 2 tp 2 dp 2 ring megatron", with(on_grid(small_gpt(), 2, 2, 1, 2), megatron)},
        {"sp 3 tp 2 ulysses documents", with(with(on_grid(small_llama(), 1, 2, 1, 3), ulysses), documents)},
        {"pp 2 gpipe", with(on_grid(small_gpt(4), 1, 1, 2, 1), gpipe)},
        {"pp 2 gpipe, 2 chunks", with(on_grid(small_gpt(4), 1, 1, 2, 1), scheduled(Schedule::gpipe, 2))},
        {"pp 4 1f1b", on_grid(small_gpt(4), 1, 1, 4, 1)},
        {"pp 2 interleaved dropout", with(with(on_grid(small_gpt(4), 1, 1, 2, 1), scheduled(Schedule::interleaved, 2)), dropped)},
        {"pp 4 zero-bubble", with(on_grid(small_llama(5), 1, 1, 4, 1), zero_bubble)},
        {"pp 3 zero-bubble tied bf16", with(with(on_grid(small_gpt(4), 1, 1, 3, 1), zero_bubble), in_bf16)},
        {"pp 2 dp 2 tp 2 megatron", with(on_grid(small_gpt(3), 2, 2, 2, 1), megatron)},
        {"pp 2 tp 2 sp 2 interleaved", with(on_grid(small_llama(4), 1, 2, 2, 2), scheduled(Schedule::interleaved, 2))},
        {"all axes", with(with(on_grid(small_gpt(4), 2, 2, 2, 2), dropped), zero_bubble)},
        {"sp 2 tp 2 dp 2, wide", on_grid(wide(small_gpt()), 2, 2, 1, 2)},
        {"sp 3 dp 2 ulysses, wide llama", with(on_grid(wide(small_llama()), 2, 1, 1, 3), ulysses)},
        {"selective llama dropout", with(with(small_llama(), dropped), selective)},
        {"full dropout", with(with(small_gpt(), dropped), full)},
        {"tp 2 llama fp16", with(on_grid(small_llama(), 1, 2, 1, 1), in_fp16)},
        {"pp 3 zero-bubble tied fp16", with(with(on_grid(small_gpt(4), 1, 1, 3, 1), zero_bubble), in_fp16)},
        {"full bf16 tp 2", with(with(on_grid(small_gpt(), 1, 2, 1, 1), in_bf16), full)},
        {"selective tp 2 sp 2 megatron dropout", with(with(with(on_grid(small_gpt(), 1, 2, 1, 2), megatron), dropped), selective)},
        {"full tp 6 as 2 x 3 llama megatron", with(with(on_grid(small_llama(), 1, 6, 1, 1), megatron), full)},
        {"full sp 3 ring documents dropout", with(with(with(on_grid(small_llama(), 1, 1, 1, 3), documents), dropped), full)},
        {"selective sp 3 ulysses llama documents", with(with(with(on_grid(small_llama(), 1, 1, 1, 3), ulysses), documents), selective)},
        {"full pp 4 zero-bubble dropout", with(with(with(on_grid(small_llama(5), 1, 1, 4, 1), zero_bubble), dropped), full)},
        {"selective pp 2 zero-bubble megatron", with(with(with(on_grid(small_gpt(4), 1, 2, 2, 1), zero_bubble), megatron), selective)},
        {"full pp 2 interleaved", with(with(on_grid(small_gpt(4), 1, 1, 2, 1), scheduled(Schedule::interleaved, 2)), full)},
        {"full, all axes", with(with(with(on_grid(small_gpt(4), 2, 2, 2, 2), dropped), zero_bubble), full)},
        {"sgd, no clip",
         with(on_grid(small_gpt(), 2, 2, 1, 1), [](Config& c) { c.optimizer.type = OptimizerType::sgd, c.train.clip_grad = 0; })},
    };
}

}  // namespace

TEST_CASE("every grid gives the numbers of one rank") { check_numbers(strategies()); }

TEST_CASE("evaluation gives the loss of training's first step, and changes nothing") { check_evaluation(strategies()); }

// Whatever the scale is, it is in the seed, and out again of the norm and of the updates.
TEST_CASE("fp16 computes what fp32 does, at any loss scale") {
    for (const int pp : {1, 2}) {
        Config c = on_grid(small_gpt(), 2, 1, pp, 1);
        Settings s;
        s.vocab = c.model.vocab_size;
        const Numbers want = interpret(compile(c, Purpose::training, {}).programs, s);
        in_fp16(c);
        for (const double scale : {1.0, 8.0, 65536.0}) {
            s.loss_scale = scale;
            CHECK(difference(interpret(compile(c, Purpose::training, {}).programs, s), want) < 1e-12);
        }
    }
}

TEST_CASE("only fp16's training scales the loss: once up, the norm down twice, every update down once") {
    for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
        const bool scales = precision == Precision::fp16;
        Config c = on_grid(small_gpt(), 2, 1, 2, 1);
        c.train.precision = precision;
        for (const Purpose purpose : {Purpose::training, Purpose::evaluation})
            for (const Program& p : compile(c, purpose, {}).programs) {
                const bool training = purpose == Purpose::training;
                int seeds = 0, norms = 0, updates = 0, scaled = 0;
                for (const Op& op : p.ops) {
                    const int power = p.attributes(op).loss_scale;
                    seeds += op.kind == Kind::scale_loss && power == 1;
                    norms += op.kind == Kind::scale_loss && power == -2 && p.outputs(op)[0] == p.norm;
                    updates += op.kind == Kind::adamw;
                    scaled += op.kind == Kind::adamw && power == -1;
                }
                CHECK(seeds == (scales && training && p.loss >= 0));
                CHECK(norms == (scales && training));
                CHECK(scaled == (scales ? updates : 0));
                CHECK((updates > 0) == training);
            }
    }
}

// g · direction by central differences of the loss, against what one step of SGD without clipping or decay subtracts.
TEST_CASE("the gradient is the loss's") {
    for (const bool llama : {false, true}) {
        Config c = llama ? small_llama() : small_gpt();
        documents(c);
        dropped(c);
        check_gradient(c);
    }
}
