// Compressed gradients: taken for what they are made of, a step gives the numbers of the program for one rank, in float64, to 1e-10, on every grid
// and at every stage; what is compressed, what it takes of the wire and of memory, and where residuals are.
#include "compile_strategies.hpp"
#include "ir/print.hpp"
#include "plan/plan.hpp"

#include <algorithm>

using namespace quadrille;
using namespace quadrille::test;

namespace {

// Methods whose packets the interpreter can hold.
auto packed(CompressionMethod method, bool feedback = true, int bits = 8) {
    return [=](Config& c) { c.compression = {method, 0.01, bits, feedback, {"embedding", "head"}}; };
}
const auto in_halves = packed(CompressionMethod::bf16);
auto cut(int stage, int shard_size = 0) {
    return [=](Config& c) { c.sharding.zero_stage = stage, c.sharding.shard_size = shard_size; };
}
auto away(OffloadTo optimizer, OffloadTo parameters, OffloadTo gradients) {
    return [=](Config& c) { c.offload.optimizer = optimizer, c.offload.parameters = parameters, c.offload.gradients = gradients; };
}
void all_units(Config& c) { c.compression.exclude = {}; }
void buckets(Config& c) { c.comm.bucket_size = 9000; }
void at_once(Config& c) { c.comm.overlap = false; }

Compiled compiled(const Config& c) {
    Compiled all = compile(c, Purpose::training, {});
    const Faults faults = verify(all.programs, compile(serial(c), Purpose::training, {}).programs[0]);
    if (!faults.empty()) FAIL_CHECK(text(all.programs, faults[0]));
    return all;
}

std::int64_t count(const Program& p, Kind kind) {
    return std::count_if(p.ops.begin(), p.ops.end(), [kind](const Op& op) { return op.kind == kind; });
}

std::int64_t bytes_of_state(const Program& p, StateKind kind, Tier tier) {
    std::int64_t n = 0;
    for (const Buffer& b : p.buffers) n += b.state == kind && b.tier == tier ? b.bytes : 0;
    return n;
}

}  // namespace

TEST_CASE("on every grid, at every stage") {
    std::vector<Strategy> all;
    for (const int stage : {0, 1, 2, 3}) {
        const auto at = [&](std::string name, const Config& c) {
            all.push_back({fmt::format("{}, stage {}", name, stage), with(c, cut(stage, c.sharding.shard_size))});
        };
        at("dp 4, wide, all units", with(with(on_grid(wide(small_gpt()), 4, 1, 1, 1), in_halves), all_units));
        at("dp 4 as 2 x 2, small buckets", with(with(with(on_grid(wide(small_gpt()), 4, 1, 1, 1), cut(0, 2)), in_halves), buckets));
        at("dp 4 as 4 x 1, without feedback", with(with(on_grid(small_llama(), 4, 1, 1, 1), cut(0, 1)), packed(CompressionMethod::fp16, false)));
        at("dp 2 as 2 x 1, sp 2", with(with(on_grid(small_llama(), 2, 1, 1, 2), cut(0, 1)), packed(CompressionMethod::qsgd)));
        at("dp 2 sp 2, bf16, no overlap", with(with(with(on_grid(small_llama(), 2, 1, 1, 2), in_bf16), in_halves), at_once));
        at("dp 2 tp 2 megatron, dropout, all units",
           with(with(with(with(on_grid(small_gpt(), 2, 2, 1, 1), megatron), dropped), in_halves), all_units));
        at("pp 2 dp 2, tied, all units", with(with(on_grid(small_gpt(4), 2, 1, 2, 1), in_halves), all_units));
        at("pp 2 dp 2, zero-bubble, fp16, selective",
           with(with(with(with(on_grid(small_gpt(4), 2, 1, 2, 1), scheduled(Schedule::zero_bubble)), in_fp16), in_halves), selective));
        at("pp 2 dp 4 as 2 x 2, interleaved, full, all units",
           with(with(with(with(with(on_grid(small_gpt(4), 4, 1, 2, 1), cut(0, 2)), scheduled(Schedule::interleaved, 2)), full), in_halves),
                all_units));
        at("dp 2, adapters, without feedback", with(with(on_grid(wide(small_gpt()), 2, 1, 1, 1), adapted()), packed(CompressionMethod::bf16, false)));
        at("dp 2 tp 2, adapters", with(with(on_grid(wide(small_gpt()), 2, 2, 1, 1), adapted()), in_halves));
        at("dp 8, one microbatch", with(on_grid(small_gpt(), 8, 1, 1, 1), in_halves));
        at("dp 2, sgd without clipping", with(with(on_grid(small_gpt(), 2, 1, 1, 1), in_halves), [](Config& c) {
               c.optimizer.type = OptimizerType::sgd;
               c.train.clip_grad = 0;
           }));
    }
    check_numbers(all);
    check_evaluation({all[0], all[1], all[6]});
}

TEST_CASE("with training state in other tiers") {
    std::vector<Strategy> all;
    for (const int stage : {0, 2, 3})
        for (const bool feedback : {false, true}) {
            const Config c = with(with(on_grid(wide(small_gpt()), 2, 1, 1, 1), cut(stage)), packed(CompressionMethod::bf16, feedback));
            const std::string name = fmt::format("stage {}{}", stage, feedback ? ", feedback" : "");
            all.push_back({name + ", optimizer on cpu", with(c, away(OffloadTo::cpu, OffloadTo::none, OffloadTo::none))});
            all.push_back({name + ", optimizer on nvme", with(c, away(OffloadTo::nvme, OffloadTo::none, OffloadTo::none))});
            all.push_back({name + ", gradients on cpu", with(c, away(OffloadTo::none, OffloadTo::none, OffloadTo::cpu))});
            all.push_back({name + ", all away", with(c, away(OffloadTo::nvme, OffloadTo::nvme, OffloadTo::cpu))});
        }
    all.push_back({"copies",
                   with(with(with(on_grid(small_gpt(), 4, 1, 1, 1), cut(2, 2)), in_halves), away(OffloadTo::cpu, OffloadTo::cpu, OffloadTo::cpu))});
    check_numbers(all);
}

TEST_CASE("none, or nobody to exchange packets with: the program without compression") {
    const auto same = [](const Config& a, const Config& b) {
        const Compiled x = compile(a, Purpose::training, {}), y = compile(b, Purpose::training, {});
        for (std::size_t i = 0; i < x.programs.size(); ++i) CHECK(text(x.programs[i]) == text(y.programs[i]));
    };
    const Config c = on_grid(small_gpt(4), 2, 1, 2, 1), alone = on_grid(small_gpt(), 1, 2, 1, 2);
    same(with(c, packed(CompressionMethod::none, false)), c);
    same(with(alone, in_halves), alone);
}

TEST_CASE("units that are excluded travel whole") {
    Config c = with(on_grid(small_llama(4), 2, 1, 1, 1), in_halves);
    const auto compressed = [&](std::vector<std::string> exclude) {
        c.compression.exclude = std::move(exclude);
        const Compiled all = compiled(c);
        std::string units;
        for (const Op& op : all.programs[0].ops)
            if (op.kind == Kind::compress) units += all.programs[0].tables->name(op.unit) + " ";
        return units;
    };
    CHECK(compressed({"embedding", "head"}) == "layers.3 layers.2 layers.1 layers.0 ");
    CHECK(compressed({}) == "head layers.3 layers.2 layers.1 layers.0 embedding ");
    CHECK(compressed({"layers.1", "3", "head"}) == "layers.2 layers.0 embedding ");
    CHECK(compressed({"all"}).empty());
    c.model.tie_word_embeddings = true;
    CHECK(compressed({"head"}) == "layers.3 layers.2 layers.1 layers.0 ");
    CHECK(compressed({"layers"}) == "head tied ");  // the last norm
}

TEST_CASE("the wire: packets' bytes and whole sums, and what it would carry without") {
    const auto plan = [](const Config& c) { return make_plan(c, {}, {}); };
    for (const int stage : {0, 1, 2}) {
        CAPTURE(stage);
        Config c = with(with(on_grid(wide(small_gpt()), 4, 1, 1, 1), cut(stage)), all_units);
        const std::int64_t microbatches = stage < 2 ? 1 : c.train.gradient_accumulation_steps;
        const auto whole = plan(c).programs[0];
        CHECK(whole.uncompressed == whole.wire);
        c.compression.method = CompressionMethod::qsgd;
        c.compression.bits = 4;
        const Plan made = plan(c);
        std::int64_t elements = 0;
        const Compiled all = compiled(c);
        for (const Flat& f : all.programs[0].flats) elements += f.length;
        CHECK(made.programs[0].uncompressed == whole.wire);
        // Of each reduce-scatter's elements, 3 of 4 of 4 bytes, half a byte and a step for each block go.
        CHECK(whole.wire.at("dp") - made.programs[0].wire.at("dp") ==
              microbatches * (elements / 4 * 3 * 4 - elements / 4 * 3 / 2 - elements / packing_block / 4 * 3 * 4));
        CHECK(text(made).find("compression qsgd, 4 bits, over dp, with error feedback\n") != std::string::npos);
        CHECK(text(made).find("under the assumption `lossy`") != std::string::npos);
    }
    CHECK(text(plan(on_grid(small_gpt(), 2, 1, 1, 1))).find("lossy") == std::string::npos);
}

TEST_CASE("residuals: whole on every rank, or a slice between copies, where the optimizer state is; nothing without feedback") {
    const Config whole = with(with(on_grid(wide(small_gpt()), 4, 1, 1, 1), in_halves), all_units);
    for (const int stage : {0, 1, 3}) {
        const Program p = compiled(with(whole, cut(stage))).programs[0];
        std::int64_t elements = 0;
        for (const Flat& f : p.flats) elements += f.length;
        CHECK(bytes_of_state(p, StateKind::residual, Tier::device) == 4 * elements);
        CHECK(count(p, Kind::retain) == std::ssize(p.flats));
        const Program copies = compiled(with(whole, cut(stage, 2))).programs[0];
        CHECK(bytes_of_state(copies, StateKind::residual, Tier::device) == 2 * elements);
        const Program away_ = compiled(with(with(whole, cut(stage)), away(OffloadTo::nvme, OffloadTo::none, OffloadTo::none))).programs[0];
        CHECK(bytes_of_state(away_, StateKind::residual, Tier::nvme) == 4 * elements);
        const Program none = compiled(with(with(with(whole, cut(stage)), packed(CompressionMethod::bf16, false)), all_units)).programs[0];
        CHECK(bytes_of_state(none, StateKind::residual, Tier::device) == 0);
        CHECK(count(none, Kind::retain) == 0);
        CHECK(count(none, Kind::compress) > 0);
    }
}

TEST_CASE("without feedback, whole gradients take no memory that they did not; with it, 8 bytes a parameter more at most") {
    for (const int stage : {0, 1}) {
        Config c = with(on_grid(wide(small_gpt(6)), 2, 1, 1, 1), cut(stage));
        c.model.tie_word_embeddings = false;
        c.comm.bucket_size = 1;
        const auto books = [&](const Config& of) {
            const Program p = compiled(of).programs[0];
            return std::pair(p.peaks[0].books[static_cast<std::size_t>(Book::gradients)], p.peaks[0].arena);
        };
        std::int64_t elements = 0;
        const Compiled all = compiled(c);
        for (const Flat& f : all.programs[0].flats) elements += f.length;
        const auto before = books(c), without = books(with(with(c, packed(CompressionMethod::bf16, false)), all_units)),
                   feedback = books(with(with(c, in_halves), all_units));
        CHECK(without.first == before.first);
        CHECK(feedback.second - without.second <= 8 * elements);
    }
}

TEST_CASE("packets travel in buckets, and sums wait for them behind the next reduction") {
    Config c = with(on_grid(wide(small_gpt(6)), 2, 1, 1, 1), packed(CompressionMethod::bf16));
    const auto exchanges = [&](std::int64_t bucket) {
        c.comm.bucket_size = bucket;
        const Program p = compiled(c).programs[0];
        std::int64_t n = 0;
        for (const Op& op : p.ops)
            n += op.queue == Queue::collective && p.type(p.inputs(op)[0]).dims == 3 && p.type(p.inputs(op)[0]).dtype == DType::u8;
        return n;
    };
    CHECK(exchanges(1) == 6);
    CHECK(exchanges(1 << 20) == 1);
    c.comm.bucket_size = 1;
    const Program p = compiled(c).programs[0];
    for (std::size_t i = 0; i + 1 < p.ops.size(); ++i)
        if (p.ops[i].queue == Queue::collective && p.type(p.inputs(p.ops[i])[0]).dtype == DType::u8) CHECK(p.ops[i + 1].kind != Kind::decompress);
}
