// Adapters through the executor: training starts from the model as it is, moves adapters alone, and every grid starts from the same bits.
#include "mpi_main.hpp"
#include "runtime_train.hpp"

#include <cmath>

using namespace quadrille;
using namespace quadrille::test;

namespace {

Config adapted(Config c) {
    c.lora = {3, 6, {"all"}};
    c.optimizer.lr = 1e-2;
    return c;
}

std::vector<std::vector<float>> weights(Trainer& t) {
    std::vector<std::vector<float>> out;
    for (std::size_t i = 0; i < t.program().parameters.size(); ++i) out.push_back(t.gather(static_cast<int>(i), StateKind::weight));
    return out;
}

// By name, on rank 0.
std::map<std::string, std::vector<float>> named(Trainer& t) {
    std::map<std::string, std::vector<float>> out;
    auto all = weights(t);
    for (std::size_t i = 0; i < all.size(); ++i) out[t.program().parameters[i].name] = std::move(all[i]);
    return out;
}

}  // namespace

TEST_CASE("the first loss is that of the model without adapters; then adapters move, and no bit of what is frozen") {
    for (const bool llama : {false, true})
        for (const Precision precision : {Precision::fp32, Precision::bf16})
            for (const int stage : {0, 3})
                for (const Axes& g : some_grids(world().size())) {
                    Config c = on_grid(tiny(llama), g.dp, g.tp, g.pp, g.sp);
                    c.train.precision = precision;
                    c.sharding.zero_stage = stage;
                    Trainer plain(world(), c), lora(world(), adapted(c), 1, true);
                    const auto base = named(plain), before = named(lora);
                    const double loss = plain.step(0).loss, first = lora.step(0).loss;
                    CHECK(first == loss);
                    StepResult last;
                    for (int k = 1; k < 4; ++k) {
                        last = lora.step(k);
                        CHECK(last.memory[0].books == lora.program().peaks[0].books);
                    }
                    CHECK(lora.step(0).loss < first);  // the first batch again, learnt a little
                    const auto after = named(lora);
                    if (world().rank() != 0) continue;
                    for (const Parameter& q : lora.program().parameters) {
                        CAPTURE(q.name);
                        if (!q.trained) CHECK(before.at(q.name) == base.at(q.name));
                        CHECK((after.at(q.name) == before.at(q.name)) == !q.trained);
                        const auto& x = before.at(q.name);
                        if (q.init == Init::uniform) {
                            const auto smaller = [](float a, float b) { return std::abs(a) < std::abs(b); };
                            const float most = std::abs(*std::max_element(x.begin(), x.end(), smaller));
                            CHECK(most <= q.init_bound * 1.005);
                            CHECK(most > 0.8 * q.init_bound);
                        }
                        if (q.name.ends_with("lora_b")) CHECK(std::all_of(x.begin(), x.end(), [](float v) { return v == 0; }));
                    }
                }
}

TEST_CASE("initial adapters are the same bits on every grid; losses and weights follow those of one rank") {
    for (const bool llama : {false, true}) {
        const Config c = adapted(tiny(llama));
        Trainer alone(world(), serial(c));
        const auto start = weights(alone);
        const Trained one = Trainer(world(), serial(c)).train(3);
        for (const Axes& g : some_grids(world().size())) {
            Config there = on_grid(c, g.dp, g.tp, g.pp, g.sp);
            there.tensor.sequence_parallel = g.tp > 1;
            Trainer grid(world(), there);
            CHECK(weights(grid) == start);
            const Trained got = Trainer(world(), there).train(3);
            CHECK(got.replicas_equal);
            for (std::size_t k = 0; k < one.steps.size(); ++k) {
                CHECK(got.steps[k].loss == doctest::Approx(one.steps[k].loss).epsilon(2e-6));
                CHECK(got.steps[k].grad_norm == doctest::Approx(one.steps[k].grad_norm).epsilon(2e-5));
            }
        }
    }
}
