// Sizes beyond 32 bits, and the largest input of all.
#include "compile_fixture.hpp"
#include "config/load.hpp"
#include "plan/plan.hpp"

#include <doctest.h>

#include <sys/resource.h>

using namespace quadrille;
using namespace quadrille::test;

namespace {

// Of this process: time on the CPU, which other jobs on the machine do not stretch, and the most memory it had.
struct Used {
    double seconds, gib;
};
Used used() {
    rusage u{};
    getrusage(RUSAGE_SELF, &u);
    const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec); };
    return {seconds(u.ru_utime) + seconds(u.ru_stime), static_cast<double>(u.ru_maxrss) / (1 << 20)};
}

}  // namespace

TEST_CASE("a million positions, batch 8, a vocabulary of 150,000") {
    Config c = small_gpt(1);
    c.model.seq_length = 1048576;
    c.model.vocab_size = 150000;
    c.train.global_batch_size = 8;
    c.train.micro_batch_size = 8;
    c.train.gradient_accumulation_steps = 1;
    std::vector<Program> programs;
    const Plan p = make_plan(c, {}, {}, &programs);
    const std::int64_t tokens = std::int64_t{8} * 1048576, logits = tokens * 150000 * 4;
    int with_logits = 0;
    for (const Buffer& b : programs[0].buffers) {
        CHECK(b.bytes >= 0);  // none has overflowed
        with_logits += b.bytes == logits;
    }
    CHECK(with_logits == 1);  // the gradient takes their place
    const TierPeak& peak = p.programs[0].peaks[0];
    CHECK(peak.arena > logits);
    CHECK(peak.arena < logits + tokens * 4 * 12 * 40 + (std::int64_t{1} << 30));
    for (const std::int64_t b : peak.books) CHECK(b > 0);
    CHECK(p.parameters == std::int64_t{150000} * 12 + std::int64_t{1048576} * 12 + 4 * 12 * 12 + 4 * 12 + 2 * 12 * 12 + 12 + 12 +
                              4 * 12 + 2 * 12);
    const double flops = 3.0 * static_cast<double>(tokens) * (2 * (4 * 144 + 2 * 144) + 4.0 * 1048576 * 12 + 2.0 * 12 * 150000);
    CHECK(p.model_flops == doctest::Approx(flops).epsilon(1e-9));
    // over tp 2 each rank sends, at the least, what four all-reduces of a block's activations take: more than 32 bits count
    const Plan cut = make_plan(on_grid(c, 1, 2, 1, 1), {}, {});
    CHECK(cut.programs[0].wire.at("tp") >= 4 * tokens * 12 * 4);
    CHECK(cut.programs[0].wire.at("tp") < 8 * tokens * 12 * 4);
}

TEST_CASE("compiling takes memory with the micro-batches, not with their square") {
    Config c = small_gpt(2);
    c.train.gradient_accumulation_steps = 4096;
    c.train.global_batch_size = 4096 * c.train.micro_batch_size;
    const auto start = used();
    const Program p = compile(c, Purpose::training, {}).programs[0];
    MESSAGE(p.ops.size() << " ops, " << used().seconds - start.seconds << " s of one core, process peak " << used().gib << " GiB");
#if !QUADRILLE_SANITIZED
    CHECK(used().gib < 0.75);
#endif
}

// Buffers in order of birth alone, each where it fits best, waste 8 to 14 % of these.
TEST_CASE("the layout of real models wastes little") {
    const auto waste = [](const char* input, std::int64_t ranks, const std::vector<std::string>& overrides) {
        Job job;
        job.ranks = ranks;
        double worst = 0;
        const Config config = load_config(std::string(QUADRILLE_SOURCE) + "/inputs/" + input, overrides, job);
        for (const Program& p : compile(config, Purpose::training, {}).programs)
            worst = std::max(worst, static_cast<double>(p.peaks[0].packing) / static_cast<double>(p.peaks[0].arena));
        return worst;
    };
    CHECK(waste("gpt2-124m.yaml", 1, {}) < 0.01);
    CHECK(waste("gpt2-124m.yaml", 4, {"grid.tp=2", "grid.pp=2"}) < 0.02);
    CHECK(waste("llama2-7b.yaml", 16, {"grid.tp=4", "grid.pp=4"}) < 0.01);
}

TEST_CASE("LoRA on Llama-2 7B, 8 ranks: 4.2 GiB a rank where training all of it takes 17.4") {
    Job job;
    job.ranks = 8;
    const auto peak = [&](const std::vector<std::string>& overrides) {
        std::int64_t most = 0;
        const Config c = load_config(std::string(QUADRILLE_SOURCE) + "/inputs/llama2-7b-lora.yaml", overrides, job);
        std::int64_t layers = 0;
        for (const ProgramPlan& p : make_plan(c, {}, {}).programs) {
            most = std::max(most, p.peaks[0].arena);
            layers += p.layers;
        }
        CHECK(layers == c.model.num_layers);  // a layer's adapters, which are a unit of their own, are no layer
        return fmt::format("{:.1f} GiB", static_cast<double>(most) / (1 << 30));
    };
    CHECK(peak({}) == "4.2 GiB");
    CHECK(peak({"model.lora=null"}) == "17.4 GiB");
}

TEST_CASE("Llama-3 405B on 16,384 ranks: compiled and verified in seconds") {
    Job job;
    job.ranks = 16384;
    const auto start = used();
    std::vector<std::string> overrides;
    if (QUADRILLE_SANITIZED) overrides = {"train.gradient_accumulation_steps=16"};  // of 64
    const Config c = load_config(std::string(QUADRILLE_SOURCE) + "/inputs/llama3-405b.yaml", overrides, job);
    std::vector<Program> programs;
    const Plan p = make_plan(c, {}, {}, &programs);
    const double seconds = used().seconds - start.seconds, gib = used().gib;
    std::size_t ops = 0;
    for (const Program& q : programs) ops += q.ops.size();
    MESSAGE("16 programs, " << ops << " ops, " << seconds << " s of one core, process peak " << gib << " GiB");
    CHECK(p.ranks == 16384);
    CHECK(p.programs.size() == 16);
    // 2·128256·16384 + 126·(16384·(2·16384 + 2·1024) + 3·16384·53248 + 2·16384) + 16384
    CHECK(p.parameters == 405853388800);
    std::int64_t weights = 0;
    for (const ProgramPlan& q : p.programs) {
        CHECK(q.count == 1024);
        CHECK(q.peaks[0].packing * 100 < q.peaks[0].arena);
        CHECK(q.states.masters == 2 * q.states.weights);
        CHECK(q.states.moments == 4 * q.states.weights);
        CHECK(q.states.gradients == 2 * q.states.weights);
        CHECK(q.wire.at("tp") > std::int64_t{1} << 36);
        // activations of 8,192 positions, cut by tp, in bf16: over each border of a stage once in each direction and microbatch
        const std::int64_t borders = &q == &p.programs.front() || &q == &p.programs.back() ? 1 : 2;
        const std::int64_t activations = borders * c.train.gradient_accumulation_steps * (131072 / 16) * 16384 * 2 / 8;
        CHECK(q.wire.at("pp") >= activations);
        CHECK(q.wire.at("pp") < activations + (std::int64_t{1} << 20));  // and a few scalars
        weights += q.states.weights;
    }
    // bf16 weights of all stages, cut by tp 8, norms whole
    CHECK(static_cast<double>(weights) == doctest::Approx(2.0 * 405.853e9 / 8).epsilon(0.001));
    const double per_token =
        3 * (126 * (2.0 * 16384 * (2 * 16384 + 2 * 1024) + 6.0 * 16384 * 53248 + 4.0 * 131072 * 16384) + 2.0 * 16384 * 128256);
    CHECK(p.model_flops == doctest::Approx(per_token * static_cast<double>(c.train.global_batch_size) * 131072).epsilon(0.01));
#if !QUADRILLE_SANITIZED
    CHECK(seconds < 60);
    CHECK(gib < 2);
#endif
}
