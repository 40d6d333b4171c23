// What must not change the numbers does not: methods and grids to a tolerance, schedules and overlap to the bit.
#include "mpi_main.hpp"
#include "runtime_train.hpp"

#include <cmath>

using namespace quadrille;
using namespace quadrille::test;

namespace {

double relative(double a, double b) { return std::abs(a - b) / std::max({std::abs(a), std::abs(b), 1e-30}); }

void check_close(const Config& base, double tolerance) {
    const Trained one = Trainer(world(), serial(base)).train(2);
    for (const Axes& g : some_grids(world().size())) {
        CAPTURE(g.dp);
        CAPTURE(g.tp);
        CAPTURE(g.pp);
        CAPTURE(g.sp);
        const Trained grid = Trainer(world(), on_grid(base, g.dp, g.tp, g.pp, g.sp)).train(2);
        CHECK(grid.replicas_equal);
        for (std::size_t k = 0; k < one.steps.size(); ++k) {
            CHECK(relative(grid.steps[k].loss, one.steps[k].loss) < tolerance);
            CHECK(relative(grid.steps[k].grad_norm, one.steps[k].grad_norm) < 10 * tolerance);
            CHECK(grid.steps[k].tokens == one.steps[k].tokens);
            CHECK(grid.steps[k].memory[0].books == grid.predicted.books);
        }
    }
}

void check_bits(const Trained& a, const Trained& b) {
    for (std::size_t k = 0; k < a.steps.size(); ++k) {
        CHECK(a.steps[k].loss == b.steps[k].loss);
        CHECK(a.steps[k].grad_norm == b.steps[k].grad_norm);
    }
    CHECK(a.parameters == b.parameters);
}

}  // namespace

TEST_CASE("dropout: the same masks on every grid") {
    Config c = tiny(false);
    c.model.hidden_dropout = 0.2;
    c.model.attention_dropout = 0.1;
    check_close(c, 2e-5);
}

TEST_CASE("documents, contiguous rings and head re-cutting") {
    Config c = tiny(true);
    c.data.mask_across_documents = true;
    check_close(c, 2e-5);
    c.sequence.layout = SequenceLayout::contiguous;
    check_close(c, 2e-5);
    c.sequence.method = SequenceMethod::ulysses;
    check_close(c, 2e-5);
}

TEST_CASE("sequence parallel inside tp") {
    for (const bool llama : {false, true}) {
        Config c = tiny(llama);
        c.tensor.sequence_parallel = true;
        c.model.hidden_dropout = 0.1;
        check_close(c, 2e-5);
    }
}

TEST_CASE("16-bit weights and activations, gradients in fp32 and 16 bits") {
    for (const Precision precision : {Precision::bf16, Precision::fp16})
        for (const Precision gradients : {Precision::fp32, precision}) {
            Config c = tiny(true);
            c.train.precision = precision;
            c.train.gradient_dtype = gradients;
            check_close(c, precision == Precision::bf16 ? 1e-2 : 2e-3);
        }
}

TEST_CASE("SGD without clipping") {
    Config c = tiny(false);
    c.optimizer.type = OptimizerType::sgd;
    c.optimizer.lr = 0.5;
    c.train.clip_grad = 0;
    check_close(c, 2e-5);
}

TEST_CASE("overlap, buckets, poisoned memory and threads change no bit") {
    for (const Axes& g : some_grids(world().size())) {
        CAPTURE(g.dp);
        CAPTURE(g.tp);
        CAPTURE(g.pp);
        CAPTURE(g.sp);
        Config c = on_grid(tiny(true), g.dp, g.tp, g.pp, g.sp);
        const Trained usual = Trainer(world(), c).train(2);
        check_bits(Trainer(world(), c).train(2), usual);
        check_bits(Trainer(world(), c, 1, true).train(2), usual);
        c.comm.overlap = false;
        check_bits(Trainer(world(), c).train(2), usual);
        c.comm.overlap = true;
        c.comm.bucket_size = 1;
        check_bits(Trainer(world(), c).train(2), usual);
    }
}

TEST_CASE("training state whole or cut, fetched ahead, at the use or kept: the same weights, to the bit, also in poisoned memory") {
    for (const Axes& g : some_grids(world().size())) {
        if (g.dp * g.sp == 1) continue;
        Config c = on_grid(tiny(g.pp > 1), g.dp, g.tp, g.pp, g.sp);
        c.comm.bucket_size = 20000;
        const auto trained = [&](int stage) {
            c.sharding.zero_stage = stage;
            const Trained t = Trainer(world(), c, 1, true).train(2);
            CHECK(t.replicas_equal);
            for (const auto& step : t.steps) CHECK(step.memory[0].books == t.predicted.books);
            return t;
        };
        check_bits(trained(1), trained(0));
        const Trained two = trained(2);
        check_bits(trained(3), two);
        c.sharding.prefetch = 0;
        check_bits(trained(3), two);
        c.sharding.keep_gathered = true;
        check_bits(trained(3), two);
    }
}

TEST_CASE("every schedule gives the same bits") {
    if (world().size() < 2) return;
    for (const bool llama : {false, true}) {
        Config c = on_grid(tiny(llama), 1, 1, 2, 1);
        if (world().size() >= 4) c = on_grid(tiny(llama), 1, 2, 2, 1);
        if (world().size() == 8) c = on_grid(tiny(llama), 2, 2, 2, 1);
        c.pipeline.schedule = Schedule::one_f_one_b;
        const Trained usual = Trainer(world(), c).train(2);
        for (const Schedule s : {Schedule::gpipe, Schedule::zero_bubble, Schedule::interleaved}) {
            c.pipeline.schedule = s;
            c.pipeline.virtual_stages = s == Schedule::interleaved ? 2 : 1;
            CAPTURE(static_cast<int>(s));
            check_bits(Trainer(world(), c, 1, true).train(2), usual);
        }
    }
}
