// However the training state is cut, a step gives the numbers of the program for one rank, in float64, to 1e-10.
#include "compile_strategies.hpp"

using namespace quadrille;
using namespace quadrille::test;

namespace {

auto cut(int stage, int shard_size = 0) {
    return [=](Config& c) { c.sharding.zero_stage = stage, c.sharding.shard_size = shard_size; };
}
auto ahead(int prefetch) {
    return [=](Config& c) { c.sharding.prefetch = prefetch; };
}
void kept(Config& c) { c.sharding.keep_gathered = true; }
void at_once(Config& c) { c.comm.overlap = false; }
auto buckets(std::int64_t bytes) {
    return [=](Config& c) { c.comm.bucket_size = bytes; };
}

// A memory limit with room for some of the units that could be kept.
void kept_in_part(Config& c) {
    const auto peak = [&c](bool keeps) {
        c.sharding.keep_gathered = keeps;
        return compile(c, Purpose::training, some_workspace).programs[0].peaks[0].arena;
    };
    c.comm.bucket_size = 1;
    const std::int64_t none = peak(false), all = peak(true);
    c.device.memory_limit = (none + all) / 2;
    CHECK(none < all);
}

// What every stage must run on.
std::vector<Strategy> grids() {
    const auto zero_bubble = scheduled(Schedule::zero_bubble);
    return {
        {"dp 4, wide", on_grid(wide(small_gpt()), 4, 1, 1, 1)},
        {"dp 4 as 2 x 2", with(on_grid(small_gpt(), 4, 1, 1, 1), cut(0, 2))},
        {"dp 2 sp 2, small buckets", with(on_grid(wide(small_gpt()), 2, 1, 1, 2), buckets(30000))},
        {"dp 2 as 2 x 1, sp 2", with(on_grid(small_llama(), 2, 1, 1, 2), cut(0, 1))},
        {"dp 2 tp 2 sp 2 megatron dropout", with(with(on_grid(small_gpt(), 2, 2, 1, 2), megatron), dropped)},
        {"tp 6 as 2 x 3, dp 2, llama", on_grid(small_llama(), 2, 6, 1, 1)},
        {"sp 3 ulysses documents llama bf16", with(with(with(on_grid(small_llama(), 1, 1, 1, 3), ulysses), documents), in_bf16)},
        {"pp 2 dp 2, 1f1b, tied", on_grid(small_gpt(4), 2, 1, 2, 1)},
        {"pp 2 dp 2, gpipe, 2 chunks", with(on_grid(small_gpt(4), 2, 1, 2, 1), scheduled(Schedule::gpipe, 2))},
        {"pp 2 dp 2, interleaved, full recompute, dropout",
         with(with(with(on_grid(small_gpt(4), 2, 1, 2, 1), scheduled(Schedule::interleaved, 2)), full), dropped)},
        {"pp 4 dp 2, zero-bubble, selective recompute, bf16", with(with(with(on_grid(small_llama(5), 2, 1, 4, 1), zero_bubble), selective), in_bf16)},
        {"pp 3 sp 2, zero-bubble, tied, no overlap", with(with(on_grid(small_gpt(3), 1, 1, 3, 2), zero_bubble), at_once)},
        {"dp 8, one microbatch", on_grid(small_gpt(), 8, 1, 1, 1)},
    };
}

std::vector<Strategy> at_stage(int stage) {
    std::vector<Strategy> out = grids();
    for (Strategy& s : out) s.config.sharding.zero_stage = stage;
    return out;
}

}  // namespace

TEST_CASE("stage 1") { check_numbers(at_stage(1), 1); }
TEST_CASE("stage 2") { check_numbers(at_stage(2), 2); }
TEST_CASE("stage 3") { check_numbers(at_stage(3), 3); }

TEST_CASE("stage 3, fetched ahead or not, and kept or not") {
    const Config two = on_grid(small_gpt(4), 2, 1, 1, 1), four = on_grid(small_gpt(4), 2, 1, 2, 1);
    check_numbers({
        {"prefetch 0", with(with(two, cut(3)), ahead(0))},
        {"prefetch 3", with(with(two, cut(3)), ahead(3))},
        {"prefetch 100", with(with(two, cut(3)), ahead(100))},
        {"kept", with(with(two, cut(3)), kept)},
        {"kept in part", with(with(with(on_grid(wide(small_gpt(6)), 2, 1, 1, 1), cut(3)), ahead(0)), kept_in_part)},
        {"kept, no overlap", with(with(with(two, cut(3)), kept), at_once)},
        {"kept, full recompute, tied, hybrid", with(with(with(on_grid(small_gpt(4), 4, 1, 1, 1), cut(3, 2)), kept), full)},
        {"kept, pp 2, 1f1b", with(with(four, cut(3)), kept)},
        {"kept, pp 2, gpipe, prefetch 2", with(with(with(with(four, cut(3)), kept), scheduled(Schedule::gpipe)), ahead(2))},
        {"kept, pp 2, interleaved", with(with(with(four, cut(3)), kept), scheduled(Schedule::interleaved, 2))},
        {"kept, pp 2, zero-bubble, selective", with(with(with(with(four, cut(3)), kept), scheduled(Schedule::zero_bubble)), selective)},
    });
}

TEST_CASE("sgd, without clipping, at every stage") {
    std::vector<Strategy> all;
    for (const int stage : {1, 2, 3}) {
        Config c = with(on_grid(small_gpt(), 2, 2, 1, 1), cut(stage));
        c.optimizer.type = OptimizerType::sgd;
        c.train.clip_grad = 0;
        all.push_back({fmt::format("stage {}", stage), c});
    }
    check_numbers(all);
}

TEST_CASE("evaluation, at every stage") {
    for (const int stage : {1, 2, 3}) check_evaluation(at_stage(stage), stage);
}
