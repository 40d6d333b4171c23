// Strategies by name, the words they are made of, and what holds for each. Run by the interpreter, in float64.
#pragma once
#include "compile_fixture.hpp"
#include "sampled.hpp"

#include <doctest.h>

#include <algorithm>
#include <cmath>

namespace quadrille::test {

struct Strategy {
    std::string name;
    Config config;
};

template <class F>
Config with(Config c, F change) {
    change(c);
    return c;
}
inline void megatron(Config& c) { c.tensor.sequence_parallel = true; }
inline void ulysses(Config& c) { c.sequence.method = SequenceMethod::ulysses; }
inline void contiguous(Config& c) { c.sequence.layout = SequenceLayout::contiguous; }
inline void dropped(Config& c) { c.model.hidden_dropout = 0.2, c.model.attention_dropout = 0.1; }
inline void documents(Config& c) { c.data.mask_across_documents = true; }
inline auto adapted(std::vector<std::string> targets = {"all"}) {
    return [=](Config& c) { c.lora = {3, 4.5, targets}; };
}
inline void in_bf16(Config& c) { c.train.precision = Precision::bf16, c.train.gradient_dtype = Precision::bf16; }
inline void in_fp16(Config& c) { c.train.precision = Precision::fp16, c.train.gradient_dtype = Precision::fp16; }
inline void selective(Config& c) { c.recompute.granularity = Granularity::selective; }
inline void full(Config& c) { c.recompute.granularity = Granularity::full; }
inline auto scheduled(Schedule s, int virtual_stages = 1) {
    return [=](Config& c) { c.pipeline.schedule = s, c.pipeline.virtual_stages = virtual_stages; };
}

// Through host memory the same is computed, and nothing else is reached from the device.
inline void check_staged(const Subject& direct, const Numbers& want) {
    const Subject staged(direct.config, staged_workspace());
    const auto& programs = staged.compiled.programs;
    const Faults faults = verify(programs, staged.one);
    if (!faults.empty()) FAIL_CHECK(text(programs, faults[0]));
    for (const Program& p : programs) {
        const auto on_host = [&p](TensorId t) { return t < 0 || p.type(t).tier == Tier::host; };
        CHECK((on_host(p.loss) && on_host(p.norm) && on_host(p.tokens)));
        CHECK(std::all_of(p.residual_squares.begin(), p.residual_squares.end(), on_host));
        for (const Op& op : p.ops) {
            const bool loads = op.kind == Kind::load && p.attributes(op).input != Input::positions;
            for (std::uint32_t k = op.first; k < op.first + op.inputs + op.outputs && (loads || moves_between_ranks(op)); ++k)
                CHECK(on_host(p.operands[k]));
        }
    }
    const Numbers got = interpret(programs, staged.settings);
    CHECK((got.loss == want.loss && got.norm2 == want.norm2 && got.weights == want.weights));
}

// Every strategy gives the numbers of the program for one rank, also through host memory, and the verifier accepts it. Where they are sampled, `turn`
// says which it is.
inline void check_numbers(const std::vector<Strategy>& strategies, int turn = 0) {
    double worst = 0;
    for (const Strategy& s : sampled(strategies, 3, static_cast<std::size_t>(turn))) {
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
            check_staged(subject, got);
        } catch (const std::runtime_error& e) {
            FAIL_CHECK(std::string(e.what()));
        }
    }
    MESSAGE("largest relative difference from one rank: " << worst);
}

// g · direction by central differences of the loss, against what one step of SGD without clipping or decay subtracts, all on one rank.
inline void check_gradient(Config c) {
    c.train.clip_grad = 0;
    c.optimizer.type = OptimizerType::sgd;
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

// Evaluation gives the loss of training's first step, and changes nothing.
inline void check_evaluation(const std::vector<Strategy>& strategies, int turn = 0) {
    for (const Strategy& s : sampled(strategies, 3, static_cast<std::size_t>(turn))) {
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
            FAIL_CHECK(std::string(e.what()));
        }
    }
}

}  // namespace quadrille::test
