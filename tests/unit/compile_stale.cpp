// Stale gradients: on every grid the numbers of the program for one rank with the same staleness, which are those of the step before; their sums
// travel while the step computes.
#include "compile_strategies.hpp"
#include "plan/plan.hpp"

#include <algorithm>

using namespace quadrille;
using namespace quadrille::test;

namespace {

void stale(Config& c) { c.comm.staleness = 1; }
auto cut(int stage, int shard_size = 0) {
    return [=](Config& c) { c.sharding.zero_stage = stage, c.sharding.shard_size = shard_size; };
}
void small_buckets(Config& c) { c.comm.bucket_size = 9000; }
void at_once(Config& c) { c.comm.overlap = false; }

}  // namespace

TEST_CASE("on every grid, at stages 0 and 1") {
    std::vector<Strategy> all;
    for (const int stage : {0, 1}) {
        const auto at = [&](std::string name, const Config& c) {
            all.push_back({fmt::format("{}, stage {}", name, stage), with(with(c, stale), cut(stage, c.sharding.shard_size))});
        };
        at("one rank", on_grid(small_gpt(), 1, 1, 1, 1));
        at("dp 4, wide, small buckets", with(on_grid(wide(small_gpt()), 4, 1, 1, 1), small_buckets));
        at("dp 4 as 2 x 2", with(on_grid(wide(small_gpt()), 4, 1, 1, 1), cut(0, 2)));
        at("dp 4 as 4 x 1, no overlap", with(with(on_grid(small_llama(), 4, 1, 1, 1), cut(0, 1)), at_once));
        at("dp 2 sp 2, bf16", with(on_grid(small_llama(), 2, 1, 1, 2), in_bf16));
        at("tp 2 megatron, dropout", with(with(on_grid(small_gpt(), 1, 2, 1, 1), megatron), dropped));
        at("pp 2 dp 2, tied", on_grid(small_gpt(4), 2, 1, 2, 1));
        at("pp 3, zero-bubble, tied, selective", with(with(on_grid(small_gpt(3), 1, 1, 3, 1), scheduled(Schedule::zero_bubble)), selective));
        at("dp 2, adapters", with(on_grid(small_gpt(), 2, 1, 1, 1), adapted()));
        at("dp 2, optimizer on nvme, parameters on cpu", with(on_grid(small_gpt(), 2, 1, 1, 1), [](Config& c) {
               c.offload.optimizer = OffloadTo::nvme;
               c.offload.parameters = OffloadTo::cpu;
           }));
    }
    check_numbers(all);
    check_evaluation({all[1], all[2], all[6]});
}

TEST_CASE("the first step updates nothing, the second by the first one's gradients") {
    Config c = on_grid(small_gpt(), 2, 1, 1, 1);
    c.optimizer.type = OptimizerType::sgd;
    const auto weights = [&](int staleness, int steps) {
        c.comm.staleness = staleness;
        Settings s;
        s.vocab = c.model.vocab_size;
        s.steps = steps;
        return interpret(compile(c, Purpose::training, {}).programs, s).weights;
    };
    CHECK(weights(1, 1) == weights(1, 0));
    CHECK(weights(1, 2) == weights(0, 1));
    CHECK(weights(1, 3) != weights(0, 2));
}

TEST_CASE("all reductions are issued before the first forward pass, and may travel until the backward pass comes to their unit") {
    for (const int stage : {0, 1}) {
        Config c = with(with(on_grid(wide(small_gpt(4)), 2, 1, 1, 1), stale), cut(stage));
        c.comm.bucket_size = 1;
        const Program p = compile(c, Purpose::training, {}).programs[0];
        std::size_t reductions = 0;
        std::int32_t first_compute = -1, first_backward = -1;
        for (std::int32_t i = 0; i < static_cast<std::int32_t>(p.ops.size()); ++i) {
            const Op& op = p.ops[static_cast<std::size_t>(i)];
            if (op.action >= 0 && first_compute < 0) first_compute = i;
            if (op.part == Part::backward_input && first_backward < 0) first_backward = i;
        }
        for (std::int32_t i = 0; i < static_cast<std::int32_t>(p.ops.size()); ++i) {
            const Op& op = p.ops[static_cast<std::size_t>(i)];
            if (op.queue != Queue::collective || p.buffer(p.inputs(op)[0]).state != StateKind::stale) continue;
            ++reductions;
            CHECK(i < first_compute);
            CHECK(op.until > first_backward - 10);
        }
        CHECK(reductions == p.flats.size());
        // Stage 1 keeps a slice beside what it had; stage 0 the whole sums.
        c.comm.staleness = 0;
        const auto gradients = [&](const Program& q) { return q.peaks[0].books[static_cast<std::size_t>(Book::gradients)]; };
        std::int64_t bytes = 0;
        for (const Flat& f : p.flats) bytes += 4 * f.length;
        CHECK(gradients(p) - gradients(compile(c, Purpose::training, {}).programs[0]) == (stage == 0 ? bytes : bytes / 2));
    }
}
