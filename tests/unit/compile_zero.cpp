// Cut training state against the textbook: bytes of state per parameter, and elements on the wire per rank and step.
#include "compile_fixture.hpp"
#include "config/load.hpp"
#include "ir/print.hpp"
#include "ir/table.hpp"
#include "plan/plan.hpp"
#include "sampled.hpp"

#include <doctest.h>

#include <cstdlib>
#include <map>
#include <set>

using namespace quadrille;
using namespace quadrille::test;

namespace {

// Every unit's parameters are a multiple of 4096, so that nothing is padded for up to four ZeRO ranks. Nothing here is allocated.
Config unpadded(bool llama) {
    Config c = llama ? small_llama(3) : small_gpt(3);
    c.model.hidden_size = c.model.ffn_hidden_size = c.model.vocab_size = 4096;
    c.model.num_attention_heads = 4;
    c.model.num_key_value_heads = llama ? 2 : 4;
    c.model.head_dim = 1024;
    c.model.seq_length = 24;
    return c;
}

Config cut(Config c, int stage, int shard_size = 0) {
    c.sharding.zero_stage = stage;
    c.sharding.shard_size = shard_size;
    return c;
}

Config in_half(Precision p, Config c, bool gradients) {
    c.train.precision = p;
    c.train.gradient_dtype = gradients ? p : Precision::fp32;
    return c;
}

std::int64_t state(const ProgramPlan& p) { return p.states.weights + p.states.masters + p.states.moments + p.states.gradients; }

// Elements of a rank's unit buffers, padding included, without the units in `without`.
std::int64_t elements(const Program& p, const std::string& without = "") {
    std::int64_t n = 0;
    for (const Flat& f : p.flats) n += f.unit == without ? 0 : f.length;
    return n;
}

// Elements and bytes of units' buffers that a rank sends in a step, by pair of placements and axes: "all_gather shard".
struct Sent {
    std::int64_t elements = 0, bytes = 0;
    friend bool operator==(const Sent&, const Sent&) = default;
};
std::map<std::string, Sent> sent(const Program& p) {
    std::map<std::string, Sent> out;
    for (const Op& op : p.ops) {
        if (op.kind != Kind::redistribute || op.queue != Queue::collective || p.type(p.inputs(op)[0]).dims != 1) continue;
        const Change c = change(p.type(p.inputs(op)[0]), p.tables->type(p.attributes(op).types[0]).place);
        const std::int64_t n = p.grid().size(c.axes);
        std::string name(name_of(c.pair));
        for (const Axis a : c.axes.list()) name += " " + std::string(name_of(a));
        for (std::size_t k = 0; k < op.inputs; ++k) {
            const std::int64_t in = local_count(p.grid(), p.type(p.inputs(op)[k]));
            const std::int64_t moved = (n - 1) * (c.pair == Pair::all_gather ? in : c.pair == Pair::reduce_scatter ? in / n : 2 * in / n);
            out[name].elements += moved;
            out[name].bytes += moved * bytes_of(p.type(p.inputs(op)[k]).dtype);
        }
    }
    return out;
}

Sent of(std::int64_t elements, int size) { return {elements, elements * size}; }

using Volumes = std::map<std::string, Sent>;

Program program_of(const Config& c) { return compile(c, Purpose::training, {}).programs[0]; }

}  // namespace

TEST_CASE("bytes of state per parameter at dp 4: the table of the architecture") {
    struct Row { Config config; std::array<double, 4> per_parameter; };
    constexpr double n = 4;
    for (const bool llama : {false, true}) {
        const Config c = on_grid(unpadded(llama), 4, 1, 1, 1);
        std::vector<Row> rows = {{c, {16, 8 + 8 / n, 4 + 12 / n, 16 / n}}};
        for (const Precision p : {Precision::bf16, Precision::fp16}) {
            rows.push_back({in_half(p, c, false), {18, 6 + 12 / n, 2 + 16 / n, 18 / n}});
            rows.push_back({in_half(p, c, true), {16, 4 + 12 / n, 2 + 14 / n, 16 / n}});
        }
        for (const auto& [config, want] : rows)
            for (int stage = 0; stage < 4; ++stage) {
                const Plan p = make_plan(cut(config, stage), {}, {});
                CAPTURE(stage);
                CHECK(elements(program_of(cut(config, stage))) == p.parameters);
                CHECK(static_cast<double>(state(p.programs[0])) == want[static_cast<std::size_t>(stage)] * static_cast<double>(p.parameters));
                // sgd has no moments
                Config sgd = cut(config, stage);
                sgd.optimizer.type = OptimizerType::sgd;
                const double moments = 8 / (stage > 0 ? n : 1);
                CHECK(static_cast<double>(state(make_plan(sgd, {}, {}).programs[0])) ==
                      (want[static_cast<std::size_t>(stage)] - moments) * static_cast<double>(p.parameters));
            }
    }
}

TEST_CASE("bytes of state: sp is cut over too, replicas are not, tp and pp have their own parameters") {
    const Config c = unpadded(true);
    const auto bytes = [](const Config& config) { return state(make_plan(config, {}, {}).programs[0]); };
    const std::int64_t whole = bytes(c);
    for (const auto& [dp, sp, shard, n] :
         {std::tuple(1, 4, 1, 4), std::tuple(2, 2, 2, 4), std::tuple(2, 2, 1, 2), std::tuple(4, 1, 2, 2), std::tuple(4, 1, 1, 1)})
        CHECK(bytes(cut(on_grid(c, dp, 1, 1, sp), 3, shard)) * n == whole);
    for (const auto& [tp, pp] : {std::pair(2, 1), std::pair(1, 3)}) {
        const Config g = on_grid(c, 2, tp, pp, 1);
        CHECK(bytes(cut(g, 3)) * 2 == bytes(g));
    }
}

TEST_CASE("bytes of state with padding: every slice is the same whole number of blocks, down to slices of padding alone") {
    for (const int dp : {2, 4, 8}) {
        const Config c = cut(on_grid(small_gpt(), dp, 1, 1, 1), 3);
        const Program p = program_of(c);
        std::int64_t padded = 0;
        for (const Flat& f : p.flats) {
            CHECK(f.end < f.length);
            CHECK(f.length == (f.end + flat_block * dp - 1) / (flat_block * dp) * flat_block * dp);
            padded += f.length;
        }
        CHECK(state(make_plan(c, {}, {}).programs[0]) == padded / dp * 16);
    }
}

TEST_CASE("planned states fall or stay from stage 0 to 3, and the cut part halves from dp 2 to dp 4") {
    for (const bool llama : {false, true})
        for (const int pp : {1, 3}) {
            std::array<std::array<std::int64_t, 4>, 2> bytes{};
            for (const int dp : {2, 4})
                for (int stage = 0; stage < 4; ++stage) {
                    const Plan p = make_plan(cut(on_grid(unpadded(llama), dp, 1, pp, 1), stage), {}, {});
                    for (const ProgramPlan& q : p.programs) bytes[static_cast<std::size_t>(dp / 4)][static_cast<std::size_t>(stage)] += state(q);
                }
            const auto& [two, four] = bytes;
            for (std::size_t stage = 1; stage < 4; ++stage) {
                CHECK(two[stage] <= two[stage - 1]);
                CHECK(four[stage] <= four[stage - 1]);
                CHECK((two[0] - two[stage]) * 3 == (four[0] - four[stage]) * 2);  // (1 - 1/2) and (1 - 1/4) of what is cut
            }
            CHECK(four[3] * 2 == two[3]);
        }
}

TEST_CASE("elements on the wire per rank and step, each times its own type's bytes") {
    for (const bool llama : {false, true})
        for (const int precision : sampled(std::vector{0, 1, 2, 3, 4}, 2, llama))  // fp32, bf16, bf16's gradients too, fp16, fp16's gradients too
            for (const auto& [dp, sp] : {std::pair(4, 1), std::pair(1, 4), std::pair(2, 2), std::pair(2, 1)}) {
                Config c = on_grid(unpadded(llama), dp, 1, 1, sp);
                if (precision > 0) c = in_half(precision < 3 ? Precision::bf16 : Precision::fp16, c, precision % 2 == 0);
                const std::int64_t n = dp * sp, m = c.train.gradient_accumulation_steps;
                const int weight = precision > 0 ? 2 : 4, gradient = precision == 2 || precision == 4 ? 2 : 4;
                const Program plain = program_of(c);
                const std::int64_t once = elements(plain) / n * (n - 1);
                // The backward pass reads no table that is only looked up: positions, and tokens where the head has its own.
                const std::int64_t again = elements(plain, "embedding") / n * (n - 1);
                const std::string axes = (dp > 1 ? std::string(" shard") : "") + (sp > 1 ? " sp" : "");
                const std::string scatter = "reduce_scatter" + axes, gather = "all_gather" + axes;
                Config kept = cut(c, 3);
                kept.sharding.keep_gathered = true;
                CAPTURE(llama);
                CAPTURE(axes);
                CHECK(m > 1);
                CHECK(sent(plain) == Volumes{{"all_reduce" + axes, of(2 * once, gradient)}});
                CHECK(sent(program_of(cut(c, 1))) == Volumes{{scatter, of(once, gradient)}, {gather, of(once, weight)}});
                CHECK(sent(program_of(cut(c, 2))) == Volumes{{scatter, of(m * once, gradient)}, {gather, of(once, weight)}});
                CHECK(sent(program_of(cut(c, 3))) == Volumes{{scatter, of(m * once, gradient)}, {gather, of(m * (once + again), weight)}});
                CHECK(sent(program_of(kept)) == Volumes{{scatter, of(m * once, gradient)}, {gather, of(m * once, weight)}});
            }
}

TEST_CASE("the plan's bytes on the wire are those elements; all else on these axes is the same at every stage") {
    const auto wire = [](const Config& c) {
        std::int64_t bytes = 0;
        const Plan plan = make_plan(c, {}, {});
        for (const auto& [axes, n] : plan.programs[0].wire) bytes += n;
        return bytes;
    };
    const auto of_units = [](const Config& c) {
        std::int64_t bytes = 0;
        for (const auto& [what, volume] : sent(program_of(c))) bytes += volume.bytes;
        return bytes;
    };
    for (const auto& [dp, sp, shard] : {std::tuple(4, 1, 4), std::tuple(4, 1, 2), std::tuple(2, 2, 2)}) {
        const Config c = in_half(Precision::bf16, on_grid(unpadded(true), dp, 1, 1, sp), false);
        const std::int64_t rest = wire(cut(c, 0)) - of_units(cut(c, 0));
        CHECK(rest > 0);
        for (int stage = 1; stage < 4; ++stage) {
            const std::int64_t scalars = wire(cut(c, stage, shard)) - of_units(cut(c, stage, shard)) - rest;
            CHECK(std::abs(scalars) <= (shard == dp ? 0 : 200));  // over two axes in turn the norm's scalars are cut otherwise
        }
    }
}

TEST_CASE("hybrid shards: scatters and gathers inside, one sum of slices over the replicas per step") {
    for (const bool llama : {false, true}) {
        Config c = unpadded(llama);
        c.train.global_batch_size = 32;
        c = on_grid(c, 8, 1, 1, 1);
        const std::int64_t n = 4, replicas = 2, m = c.train.gradient_accumulation_steps;
        const Program p = program_of(cut(c, 1, 4));
        const std::int64_t once = elements(p) / n * (n - 1), again = elements(p, "embedding") / n * (n - 1);
        const Sent copies = of(2 * (elements(p) / n) / replicas * (replicas - 1), 4);
        CHECK(m > 1);
        const Volumes whole = sent(program_of(cut(c, 0, 4)));
        CHECK(whole == Volumes{{"reduce_scatter shard", of(once, 4)}, {"all_reduce replica", copies}, {"all_gather shard", of(once, 4)}});
        CHECK(2 * once + copies.elements == 2 * (elements(p) / 8) * 7);  // what one sum over all eight takes
        CHECK(sent(p) == Volumes{{"reduce_scatter shard", of(once, 4)}, {"all_reduce replica", copies}, {"all_gather shard", of(once, 4)}});
        const Sent often = of(m * once, 4), gathered = of(m * (once + again), 4);
        const Volumes stage_2 = {{"reduce_scatter shard", often}, {"all_reduce replica", copies}, {"all_gather shard", of(once, 4)}};
        const Volumes stage_3 = {{"reduce_scatter shard", often}, {"all_reduce replica", copies}, {"all_gather shard", gathered}};
        CHECK(sent(program_of(cut(c, 2, 4))) == stage_2);
        CHECK(sent(program_of(cut(c, 3, 4))) == stage_3);
        for (int stage = 1; stage < 4; ++stage)  // shards of one rank are plain data parallelism
            CHECK(text(program_of(cut(c, stage, 1))) == text(program_of(cut(c, 0, 1))));
    }
}

TEST_CASE("every stage and shard size is another program") {
    const Config c = on_grid(small_gpt(), 4, 1, 1, 1);
    std::set<std::string> texts;
    for (int stage = 0; stage < 4; ++stage)
        for (const int size : {2, 4}) texts.insert(text(program_of(cut(c, stage, size))));
    CHECK(texts.size() == 8);
}

// Rajbhandari et al. 2020, figure 1, and the same with gradients in fp32.
TEST_CASE("7.5 billion parameters on 64 ranks: the textbook's gigabytes of model states") {
    Job job;
    job.ranks = 64;
    const auto gigabytes = [&](int stage, const char* gradients) {
        const Config c = load_config(std::string(QUADRILLE_SOURCE) + "/inputs/zero-7.5b.yaml",
                                     {fmt::format("sharding.zero_stage={}", stage), fmt::format("train.gradient_dtype={}", gradients)}, job);
        const Plan p = make_plan(c, {}, {});
        CHECK(static_cast<double>(p.parameters) == doctest::Approx(7.5e9).epsilon(1e-4));
        CHECK(text(p).find(fmt::format("model states  {:.1f} GB", 1e-9 * static_cast<double>(state(p.programs[0])))) != std::string::npos);
        return fmt::format("{:.1f}", 1e-9 * static_cast<double>(state(p.programs[0])));
    };
    const char* in_bf16[] = {"120.0", "31.4", "16.6", "1.9"};
    const char* in_fp32[] = {"135.0", "46.4", "16.9", "2.1"};
    for (const int stage : sampled(std::vector{3, 2, 1, 0}, 4)) {
        CHECK(gigabytes(stage, "bf16") == in_bf16[stage]);
        CHECK(gigabytes(stage, "fp32") == in_fp32[stage]);
    }
}
