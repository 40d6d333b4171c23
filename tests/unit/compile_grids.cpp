// Every grid and strategy gives the numbers of the program for one rank, in float64, to 1e-10; and that program's gradients are
// the loss's, by central differences. Independent of the kernels and of the verifier.
#include "compile_fixture.hpp"

#include <doctest.h>

#include <cmath>

using namespace quadrille;
using namespace quadrille::test;

namespace {

struct Strategy {
    const char* name;
    Config config;
};

template <class F>
Config with(Config c, F change) {
    change(c);
    return c;
}
void megatron(Config& c) { c.tensor.sequence_parallel = true; }
void ulysses(Config& c) { c.sequence.method = SequenceMethod::ulysses; }
void contiguous(Config& c) { c.sequence.layout = SequenceLayout::contiguous; }
void dropped(Config& c) { c.model.hidden_dropout = 0.2, c.model.attention_dropout = 0.1; }
void documents(Config& c) { c.data.mask_across_documents = true; }
void in_bf16(Config& c) { c.train.precision = Precision::bf16, c.train.gradient_dtype = Precision::bf16; }
auto scheduled(Schedule s, int virtual_stages = 1) {
    return [=](Config& c) { c.pipeline.schedule = s, c.pipeline.virtual_stages = virtual_stages; };
}

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
        {"sgd, no clip",
         with(on_grid(small_gpt(), 2, 2, 1, 1), [](Config& c) { c.optimizer.type = OptimizerType::sgd, c.train.clip_grad = 0; })},
    };
}

}  // namespace

TEST_CASE("every grid gives the numbers of one rank") {
    double worst = 0;
    for (const Strategy& s : strategies()) {
        CAPTURE(s.name);
        const Subject subject(s.config);
        const auto& programs = subject.compiled.programs;
        const Faults faults = verify(programs, subject.one);
        if (!faults.empty()) FAIL_CHECK(text(programs, faults[0]));
        try {
            Settings reference = subject.settings;
            const Numbers want = interpret({subject.one}, reference), got = interpret(programs, subject.settings);
            CHECK(got.loss.size() == 2);
            CHECK(got.norm2.size() == 2);
            CHECK(got.tokens[0] > 0);
            CHECK(difference(got, want) < 1e-10);
            worst = std::max(worst, difference(got, want));
        } catch (const std::runtime_error& e) {
            FAIL_CHECK(e.what());
        }
    }
    MESSAGE("largest relative difference from one rank: " << worst);
}

TEST_CASE("evaluation gives the loss of training's first step, and changes nothing") {
    for (const Strategy& s : strategies()) {
        if (s.config.model.hidden_dropout > 0) continue;
        CAPTURE(s.name);
        const Subject subject(s.config);
        const Compiled evaluation = compile(s.config, Purpose::evaluation, some_workspace);
        const Faults faults = verify(evaluation.programs, compile(serial(s.config), Purpose::evaluation, {}).programs[0]);
        if (!faults.empty()) FAIL_CHECK(text(evaluation.programs, faults[0]));
        Settings once = subject.settings;
        once.steps = 1;
        try {
            const Numbers train = interpret(subject.compiled.programs, once), now = interpret(evaluation.programs, once);
            CHECK(now.loss == train.loss);
            CHECK(now.norm2.empty());
            once.steps = 0;
            CHECK(now.weights == interpret(evaluation.programs, once).weights);
        } catch (const std::runtime_error& e) {
            FAIL_CHECK(e.what());
        }
    }
}

// g · direction by central differences of the loss, against what one step of SGD without clipping or decay subtracts.
TEST_CASE("the gradient is the loss's") {
    for (const bool llama : {false, true}) {
        Config c = llama ? small_llama() : small_gpt();
        c.train.clip_grad = 0;
        c.optimizer.type = OptimizerType::sgd;
        documents(c);
        dropped(c);
        const Program one = compile(c, Purpose::training, {}).programs[0];
        Settings s;
        s.vocab = c.model.vocab_size;
        s.steps = 0;
        const auto before = interpret({one}, s).weights;
        s.steps = 1;
        s.lr = 1;
        s.weight_decay = 0;
        const auto after = interpret({one}, s).weights;
        double along = 0;
        for (const auto& [name, x] : before)
            for (std::size_t i = 0; i < x.size(); ++i)
                along += (x[i] - after.at(name)[i]) * nudge_direction(name, static_cast<std::int64_t>(i));
        const double h = 1e-5;
        const auto loss = [&](double nudge) {
            s.nudge = nudge;
            return interpret({one}, s).loss[0];
        };
        const double difference = (loss(h) - loss(-h)) / (2 * h);
        CAPTURE(difference);
        CHECK(std::abs(along - difference) < 1e-6 * std::abs(difference));
    }
}
