// Through host memory a step has the same bits, in memory that is measured as planned on both tiers, and moves the bytes that the program says.
#include "mpi_main.hpp"
#include "runtime_train.hpp"
#include "sampled.hpp"

#include <functional>

using namespace quadrille;
using namespace quadrille::test;

namespace {

// In poisoned memory.
Trained trained(const Config& c, bool through_host) {
    Trainer trainer(world(), c, 1, true, through_host);
    const Trained t = trainer.train(2);
    CHECK(t.replicas_equal);
    const auto moved = tier_bytes(trainer.program());
    for (const StepResult& s : t.steps) {
        for (std::size_t a = 0; a < t.wire_axes.size(); ++a)
            CHECK(s.sent_bytes[a] == (t.wire.contains(t.wire_axes[a]) ? t.wire.at(t.wire_axes[a]) : 0));
        for (const Queue q : tier_queues) CHECK(s.moved_bytes[tier_queue(q)] == (moved.contains(q) ? moved.at(q) : 0));
    }
    return t;
}

void check_bits(const Config& c) {
    const Trained direct = trained(c, false), staged = trained(c, true);
    for (std::size_t k = 0; k < direct.steps.size(); ++k) {
        CHECK(staged.steps[k].loss == direct.steps[k].loss);
        CHECK(staged.steps[k].grad_norm == direct.steps[k].grad_norm);
        CHECK(staged.steps[k].tokens == direct.steps[k].tokens);
        CHECK(staged.steps[k].residual2 == direct.steps[k].residual2);
        CHECK(staged.steps[k].sent_bytes == direct.steps[k].sent_bytes);
    }
    CHECK(staged.parameters == direct.parameters);
}

struct Technique {
    const char* name;
    std::function<bool(Config&)> make;  // false: there is nothing of it on this grid
};
std::vector<Technique> techniques() {
    const auto stage = [](int zero) {
        return [zero](Config& c) {
            c.sharding.zero_stage = zero;
            c.comm.bucket_size = 20000;
            return c.grid.dp * c.grid.sp > 1;
        };
    };
    const auto scheduled = [](Schedule s, int virtual_stages) {
        return [=](Config& c) {
            c.pipeline.schedule = s;
            c.pipeline.virtual_stages = virtual_stages;
            return c.grid.pp > 1;
        };
    };
    return {
        {"plain", [](Config&) { return true; }},
        {"no overlap", [](Config& c) { return c.comm.overlap = false, true; }},
        {"stage 1", stage(1)},
        {"stage 2", stage(2)},
        {"stage 3", stage(3)},
        {"hybrid shards of stage 2", [](Config& c) { return c.sharding.zero_stage = 2, c.sharding.shard_size = 1, c.grid.dp > 1; }},
        {"megatron", [](Config& c) { return c.tensor.sequence_parallel = true, c.grid.tp > 1; }},
        {"ulysses", [](Config& c) { return c.sequence.method = SequenceMethod::ulysses, c.grid.sp > 1; }},
        {"interleaved", scheduled(Schedule::interleaved, 2)},
        {"zero-bubble", scheduled(Schedule::zero_bubble, 1)},
        {"fp16, full recompute, dropout",
         [](Config& c) {
             c.train.precision = Precision::fp16;
             c.recompute.granularity = Granularity::full;
             c.model.hidden_dropout = 0.1;
             return true;
         }},
        {"all in host memory, stage 3",
         [](Config& c) {
             c.sharding.zero_stage = c.grid.dp * c.grid.sp > 1 ? 3 : 0;
             c.offload.optimizer = c.offload.parameters = c.offload.gradients = c.offload.activations = OffloadTo::cpu;
             return true;
         }},
        {"optimizer and gradients in host memory",
         [](Config& c) { return c.offload.optimizer = c.offload.gradients = OffloadTo::cpu, true; }},
        {"compressed",
         [](Config& c) {
             c.compression = {c.grid.tp > 1 ? CompressionMethod::bf16 : CompressionMethod::topk, 0.05, 4, true, {"embedding", "head"}};
             return c.grid.dp > 1;
         }},
        {"stale", [](Config& c) { return c.comm.staleness = 1, c.grid.dp > 1; }},
    };
}

}  // namespace

TEST_CASE("every technique has its bits") {
    const std::vector<Axes> grids = some_grids(world().size());
    std::size_t turn = 0;
    for (const Technique& technique : sampled(techniques(), 3)) {
        std::size_t most = world().size() <= 2 ? grids.size() : 1;  // grids for each: they take turns
        for (std::size_t k = 0; k < grids.size() && most > 0; ++k) {
            const Axes& g = grids[(turn + k) % grids.size()];
            Config c = on_grid(tiny(turn % 2 == 0), g.dp, g.tp, g.pp, g.sp);
            if (!technique.make(c)) continue;
            CAPTURE(technique.name);
            CAPTURE(g.dp);
            CAPTURE(g.tp);
            CAPTURE(g.pp);
            CAPTURE(g.sp);
            check_bits(c);
            --most;
        }
        ++turn;
    }
}

TEST_CASE("evaluation has training's loss, on the same memory") {
    for (const Axes& g : some_grids(world().size())) {
        Trainer trainer(world(), on_grid(tiny(true), g.dp, g.tp, g.pp, g.sp), 1, false, true);
        const double before = trainer.evaluate(0).loss;
        CHECK(trainer.step(0).loss == before);
    }
}
