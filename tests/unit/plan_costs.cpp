// FLOPs, state bytes and wire bytes against formulas written here, from the model's shape alone.
#include "compile_fixture.hpp"
#include "model/model.hpp"
#include "base/error.hpp"
#include "plan/plan.hpp"

#include <doctest.h>

#include <cmath>

using namespace quadrille;
using namespace quadrille::test;

namespace {

double real(std::int64_t x) { return static_cast<double>(x); }

// A model whose padding is small beside its parameters: 256 wide, 8 heads.
Config middle(bool llama, std::int64_t layers = 4) {
    Config c = llama ? small_llama(layers) : small_gpt(layers);
    c.model.hidden_size = 256;
    c.model.num_attention_heads = 8;
    c.model.num_key_value_heads = llama ? 4 : 8;
    c.model.head_dim = 32;
    c.model.ffn_hidden_size = llama ? 768 : 1024;
    c.model.vocab_size = 512;
    c.model.seq_length = 64;
    return c;
}

Plan plan_of(const Config& c) { return make_plan(c, {}, {}); }

// Multiply-adds per token from the parameters themselves: every matrix once, a table that is only looked up not at all.
double forward_flops_per_token(const Config& c) {
    auto tables = std::make_shared<Tables>(grid_of(serial(c)));
    double products = 0;
    for (const Parameter& p : build_model(serial(c), tables).parameters) {
        double n = p.shape.size() < 2 || p.name.ends_with(".bias") ? 0 : 1;
        for (const std::int64_t d : p.shape) n *= real(d);
        if (p.name == "position_embedding.weight" || (p.name == "embedding.weight" && !c.model.tie_word_embeddings)) n = 0;
        products += n;
    }
    // scores and their use, over all positions
    return 2 * products +
           4 * real(c.model.num_layers) * real(c.model.seq_length) * real(c.model.num_attention_heads * c.model.head_dim);
}

double state(const ProgramPlan& p) { return real(p.states.weights + p.states.masters + p.states.moments + p.states.gradients); }

// Bytes per rank of moving a tensor of so many bytes over n ranks.
double all_reduce(double bytes, double n) { return 2 * (n - 1) / n * bytes; }

double moved(const Plan& p, const std::string& axes, std::size_t program = 0) {
    const auto it = p.programs[program].wire.find(axes);
    return it == p.programs[program].wire.end() ? 0.0 : real(it->second);
}

constexpr double scalars = 100;  // bytes: counts, losses and norms, of 8 bytes each

}  // namespace

TEST_CASE("model FLOPs: MHA, GQA, swiglu, tied and untied") {
    for (const bool llama : {false, true})
        for (const bool tied : {false, true}) {
            Config c = middle(llama);
            c.model.tie_word_embeddings = tied;
            const double tokens = real(c.train.global_batch_size * c.model.seq_length),
                         want = 3 * forward_flops_per_token(c) * tokens;
            CHECK(std::abs(model_flops(c) / want - 1) < 0.01);
        }
}

TEST_CASE("model FLOPs of GPT-2 124M, as PaLM's appendix counts: 6 N + 12 L h s per token") {
    Config c;
    c.train.global_batch_size = 1;
    const double n = 124.44e6 - 1024 * 768, per_token = 6 * n + 12.0 * 12 * 768 * 1024;
    CHECK(std::abs(model_flops(c) / 1024 / per_token - 1) < 0.01);
}

TEST_CASE("model FLOPs belong to the model and the batch; hardware FLOPs are the same on every grid") {
    Config c = middle(true);
    const double model = model_flops(c), hardware = plan_of(c).hardware_flops;
    for (const auto& [dp, tp, pp, sp] : {std::tuple(2, 1, 1, 1), std::tuple(1, 4, 1, 1), std::tuple(1, 1, 4, 1),
                                         std::tuple(1, 1, 1, 2), std::tuple(2, 2, 2, 2)}) {
        const Config g = on_grid(c, dp, tp, pp, sp);
        CHECK(model_flops(g) == model);
        CHECK(std::abs(plan_of(g).hardware_flops / hardware - 1) < 1e-12);
    }
    c.train.micro_batch_size = 1;
    c.train.gradient_accumulation_steps = 8;
    CHECK(model_flops(c) == model);
    CHECK(std::abs(plan_of(c).hardware_flops / hardware - 1) < 1e-12);
}

TEST_CASE("hardware FLOPs: three products for each of the model's, and causal attention") {
    const Config c = middle(false);
    const double tokens = real(c.train.global_batch_size * c.model.seq_length), s = real(c.model.seq_length);
    const double scores = real(c.model.num_layers) * s * real(c.model.num_attention_heads * c.model.head_dim),
                 products = forward_flops_per_token(c) - 4 * scores;
    const double want = tokens * (3 * products + 14 * scores * (s + 1) / (2 * s));
    CHECK(std::abs(plan_of(c).hardware_flops / want - 1) < 1e-9);
}

TEST_CASE("recompute: bytes saved and FLOPs added are against the same input without it, in the plan, its text and its JSON") {
    Config c = on_grid(middle(true, 8), 1, 1, 2, 1);
    const Plan none = plan_of(c);
    const auto fullest = [](const Plan& p) { return std::max(p.programs[0].peaks[0].arena, p.programs[1].peaks[0].arena); };
    CHECK(none.recompute.bytes_saved == 0);
    CHECK(none.recompute.flops_added == 0);
    CHECK(text(none).find("recompute") == std::string::npos);
    for (const auto& [granularity, name] : {std::pair(Granularity::selective, "selective"), std::pair(Granularity::full, "full")}) {
        c.recompute.granularity = granularity;
        const Plan p = plan_of(c);
        CHECK(p.recompute.bytes_saved == fullest(none) - fullest(p));
        CHECK(p.recompute.bytes_saved > 0);
        CHECK(p.recompute.flops_added == p.hardware_flops - none.hardware_flops);
        CHECK((p.recompute.flops_added > 0) == (granularity == Granularity::full));
        CHECK(p.model_flops == none.model_flops);
        CHECK(text(p).find(fmt::format("recompute   {}: ", name)) != std::string::npos);
        const std::string written = fmt::format("\"recompute\": {{\"granularity\": \"{}\", \"bytes_saved\": {}, ", name, p.recompute.bytes_saved);
        CHECK(json(p).find(written) != std::string::npos);
    }
}

TEST_CASE("where a rank's memory is too small, recompute is among the changes that are offered") {
    const auto vary = [](const std::vector<std::string>& changes) {
        Config c = on_grid(middle(false, 8), 1, 1, 2, 1);
        c.train.micro_batch_size = 1;
        c.train.gradient_accumulation_steps = 8;
        for (const std::string& change : changes) {
            if (change == "recompute.granularity=selective") c.recompute.granularity = Granularity::selective;
            else if (change == "recompute.granularity=full") c.recompute.granularity = Granularity::full;
            else throw Error(Exit::refused, "not here");
        }
        return c;
    };
    Config c = vary({});
    const auto peak = [&](Granularity g) {
        Config r = c;
        r.recompute.granularity = g;
        std::int64_t most = 0;
        for (const Program& p : compile(r, Purpose::training, {}).programs) most = std::max(most, p.peaks[0].arena);
        return most;
    };
    c.device.memory_limit = peak(Granularity::full);
    Plan p = make_plan(c, {}, vary);
    REQUIRE(p.suggestions.size() == 1);
    CHECK(p.suggestions[0].change == "recompute.granularity=full");
    CHECK(p.suggestions[0].peak_bytes[0] == peak(Granularity::full));
    c.device.memory_limit = peak(Granularity::selective);
    p = make_plan(c, {}, vary);
    REQUIRE(p.suggestions.size() == 2);
    CHECK(p.suggestions[0].change == "recompute.granularity=selective");
}

TEST_CASE("bytes of state per parameter: fp32 16, bf16 and fp16 18, with gradients as short 16") {
    Config c = middle(true, 12);
    const auto per_parameter = [](const Config& config) {
        const Plan p = plan_of(config);
        return state(p.programs[0]) / real(p.parameters);
    };
    CHECK(std::abs(per_parameter(c) / 16 - 1) < 0.01);
    CHECK(std::abs(per_parameter(on_grid(c, 4, 1, 1, 1)) / 16 - 1) < 0.01);
    CHECK(std::abs(per_parameter(on_grid(c, 1, 4, 1, 1)) / 4 - 1) < 0.02);  // norms are on every rank
    for (const Precision precision : {Precision::bf16, Precision::fp16}) {
        c.train.precision = precision;
        c.train.gradient_dtype = Precision::fp32;
        CHECK(std::abs(per_parameter(c) / 18 - 1) < 0.01);
        c.train.gradient_dtype = precision;
        CHECK(std::abs(per_parameter(c) / 16 - 1) < 0.01);
    }
    c.optimizer.type = OptimizerType::sgd;
    CHECK(std::abs(per_parameter(c) / 8 - 1) < 0.01);
}

TEST_CASE("states by what they are") {
    Config c = middle(false);
    c.train.precision = Precision::bf16;
    const Plan p = plan_of(c);
    const StateBytes& s = p.programs[0].states;
    CHECK(s.masters == 2 * s.weights);
    CHECK(s.moments == 4 * s.weights);
    CHECK(s.gradients == 2 * s.weights);
    CHECK(p.parameters == 512 * 256 + 64 * 256 + 4 * (4 * 256 * 256 + 4 * 256 + 2 * 256 * 1024 + 1024 + 256 + 4 * 256) + 2 * 256);
}

TEST_CASE("wire: data parallel all-reduces the gradients once a step") {
    for (const int n : {2, 4}) {
        const Plan p = plan_of(on_grid(middle(true), n, 1, 1, 1));
        CHECK(std::abs(moved(p, "dp") - all_reduce(real(p.programs[0].states.gradients), n)) < scalars);
    }
}

TEST_CASE("wire: tensor parallel moves 4 activations a layer and microbatch, with sequence parallel the same bytes and two gathers") {
    for (const int n : {2, 4}) {
        Config c = on_grid(middle(true), 1, n, 1, 1);
        const double tokens = real(c.train.micro_batch_size * c.model.seq_length),
                     micro = real(c.train.gradient_accumulation_steps), x = tokens * real(c.model.hidden_size) * 4;
        // per layer two forward and two backward; the embedding's result and the head's input gradient; logit maximum and two
        // sums
        const double want = micro * all_reduce(x * (4 * real(c.model.num_layers) + 2) + tokens * 3 * 4, n);
        CHECK(std::abs(moved(plan_of(c), "tp") - want) < scalars);
        c.tensor.sequence_parallel = true;
        const double norms =
            (2 * real(c.model.num_layers) + 1) * real(c.model.hidden_size) * 4;  // their gradients are summed over tp
        const double gathered =
            micro * (n - 1) / n * x * real(c.model.num_layers) * 2;  // inputs of column-parallel weights, again in the backward
        CHECK(std::abs(moved(plan_of(c), "tp") - want - all_reduce(norms, n) - gathered) < scalars);
    }
}

TEST_CASE("wire: a ring turns keys and values, their gradients once more; Ulysses re-cuts q, k, v and o") {
    for (const int n : {2, 4}) {
        Config c = on_grid(middle(true), 1, 1, 1, n);
        const double micro = real(c.train.gradient_accumulation_steps), layers = real(c.model.num_layers),
                     rows = real(c.train.micro_batch_size * c.model.seq_length) / n * 4;
        const double q = rows * real(c.model.num_attention_heads * c.model.head_dim),
                     kv = rows * real(c.model.num_key_value_heads * c.model.head_dim);
        const double gradients = all_reduce(real(plan_of(c).programs[0].states.gradients), n);
        const double ring = micro * layers * (2 * kv * (n - 1) + 2 * kv * (n - 1) + 2 * kv * n);
        CHECK(std::abs(moved(plan_of(c), "sp") - ring - gradients) < scalars);
        c.sequence.method = SequenceMethod::ulysses;
        const double ulysses = micro * layers * 2 * (2 * q + 2 * kv) * (n - 1) / n;
        CHECK(std::abs(moved(plan_of(c), "sp") - ulysses - gradients) < scalars);
    }
}

TEST_CASE("wire: a pipeline sends one activation and one gradient per border and microbatch") {
    const Config c = on_grid(middle(true), 1, 1, 4, 1);
    const Plan p = plan_of(c);
    const double x = real(c.train.micro_batch_size * c.model.seq_length * c.model.hidden_size) * 4,
                 micro = real(c.train.gradient_accumulation_steps);
    for (std::size_t r = 0; r < 4; ++r) CHECK(std::abs(moved(p, "pp", r) - micro * x * (r == 0 || r == 3 ? 1 : 2)) < 2 * scalars);
    Config tied = on_grid(middle(false), 1, 1, 2, 1);
    const Plan q = plan_of(tied);
    const double table = real(tied.model.vocab_size * tied.model.hidden_size) * 4;  // summed over the two ends
    CHECK(std::abs(moved(q, "pp") - real(tied.train.gradient_accumulation_steps) * x - all_reduce(table, 2)) < 2 * scalars);
}
