// Recompute: what is kept of a layer, byte by byte; what the clones are, where they stand and what they cost.
#include "compile_fixture.hpp"
#include "ir/print.hpp"
#include "ir/table.hpp"
#include "plan/costs.hpp"

#include <doctest.h>

#include <map>
#include <set>

using namespace quadrille;
using namespace quadrille::test;

namespace {

constexpr std::array granularities = {Granularity::none, Granularity::selective, Granularity::full};

Config remade(Config c, Granularity g) {
    c.recompute.granularity = g;
    return c;
}

Config megatron(Config c) {
    c.tensor.sequence_parallel = true;
    return c;
}

Config one_pass(Config c) {
    c.train.gradient_accumulation_steps = 1;
    c.train.global_batch_size = c.train.micro_batch_size * c.grid.dp;
    return c;
}

std::vector<Program> programs_of(const Config& c) { return compile(c, Purpose::training, {}).programs; }

bool backward(const Op& op) { return op.part == Part::backward_input || op.part == Part::backward_weight; }

// Bytes of activations that live through the turn from forward to backward, and the largest sum of them at any op after it.
struct Held {
    std::int64_t turn = 0, most = 0;
};
Held held(const Program& p) {
    std::int32_t turn = 0;
    while (!backward(p.ops[static_cast<std::size_t>(turn)])) ++turn;
    std::vector<std::int64_t> live(p.ops.size() + 1, 0);
    for (const Buffer& b : p.buffers)
        for (std::int32_t i = std::max(b.first, turn); b.book == Book::activations && i <= b.last; ++i) live[static_cast<std::size_t>(i)] += b.bytes;
    Held h;
    for (const Buffer& b : p.buffers)
        if (b.book == Book::activations && b.first < turn && b.last >= turn) h.turn += b.bytes;
    h.most = *std::max_element(live.begin(), live.end());
    return h;
}

// Bytes per layer, a layer more against a layer less.
std::int64_t kept_per_layer(Config c) {
    c = one_pass(c);
    const std::int64_t few = held(programs_of(c)[0]).turn;
    ++c.model.num_layers;
    return held(programs_of(c)[0]).turn - few;
}

std::map<std::string, int> clones(const Program& p, Part part) {
    std::map<std::string, int> n;
    for (const Op& op : p.ops)
        if (op.clone && op.part == part) ++n[std::string(row(op.kind).name)];
    return n;
}

}  // namespace

TEST_CASE("bytes kept of a GPT layer, in b s h elements, beside those of Korthikanti et al. 2022 without dropout masks and scores") {
    struct Kept { int tp; bool sequence_parallel; std::array<double, 3> sbh; };
    for (const Kept& want :
         {Kept{1, false, {16, 10, 1}}, Kept{2, false, {4 + 12 / 2.0, 2 + 8 / 2.0, 1}}, Kept{3, false, {4 + 12 / 3.0, 2 + 8 / 3.0, 1}},
          Kept{2, true, {16 / 2.0, 10 / 2.0, 1 / 2.0}}, Kept{3, true, {16 / 3.0, 10 / 3.0, 1 / 3.0}}})
        for (const Precision precision : {Precision::fp32, Precision::bf16})
            for (const double dropout : {0.0, 0.1}) {
                Config c = on_grid(small_gpt(), 1, want.tp, 1, 1);
                c.tensor.sequence_parallel = want.sequence_parallel;
                c.model.ffn_hidden_size = 4 * c.model.hidden_size;
                c.model.hidden_dropout = c.model.attention_dropout = dropout;
                c.train.precision = precision;
                const double bs = static_cast<double>(c.train.micro_batch_size * c.model.seq_length), h = static_cast<double>(c.model.hidden_size);
                const double lse = 4 * bs * static_cast<double>(c.model.num_attention_heads) / want.tp;
                for (std::size_t g = 0; g < 3; ++g) {
                    CAPTURE(want.tp);
                    CAPTURE(want.sequence_parallel);
                    CAPTURE(g);
                    const double bytes = want.sbh[g] * bs * h * (precision == Precision::bf16 ? 2 : 4) + (g < 2 ? lse : 0);
                    CHECK(static_cast<double>(kept_per_layer(remade(c, granularities[g]))) == doctest::Approx(bytes));
                }
            }
}

TEST_CASE("bytes kept of a Llama layer: its heads, its gate and its sequence's share") {
    for (const auto& [tp, sp] : {std::pair(1, 1), std::pair(2, 1), std::pair(1, 2), std::pair(2, 3)})
        for (const SequenceMethod method : {SequenceMethod::ring, SequenceMethod::ulysses}) {
            Config c = on_grid(small_llama(), 1, tp, 1, sp);
            c.model.num_attention_heads = c.model.num_key_value_heads = 6;
            c.model.ffn_hidden_size = 36;
            c.sequence.method = method;
            const double bs = static_cast<double>(c.train.micro_batch_size * c.model.seq_length) / sp, h = 12, f = 36.0 / tp;
            const bool twice = sp > 1 && method == SequenceMethod::ulysses;  // attention's result, before and after the re-cut
            const double lse = bs * 6 / tp, qkvo = (twice ? 5 : 4) * h / tp;
            const std::array<double, 3> elements = {bs * (4 * h + qkvo + 3 * f) + lse, bs * (2 * h + qkvo + 2 * f) + lse, bs * h};
            for (std::size_t g = 0; g < 3; ++g) {
                CAPTURE(c.grid.tp);
                CAPTURE(c.grid.sp);
                CAPTURE(g);
                CHECK(static_cast<double>(kept_per_layer(remade(c, granularities[g]))) == doctest::Approx(4 * elements[g]));
            }
        }
}

TEST_CASE("too few key-value heads for Ulysses: the copies gathered over sp are dropped, each rank keeps its piece") {
    Config c = on_grid(small_llama(), 1, 1, 1, 3);
    c.sequence.method = SequenceMethod::ulysses;
    const std::int64_t none = kept_per_layer(c), selective = kept_per_layer(remade(c, Granularity::selective));
    const std::int64_t bs = c.train.micro_batch_size * c.model.seq_length / 3, kv = bs * 2 * 2;
    CHECK(none - selective == 4 * (bs * (2 * 12 + 12) + 2 * kv * (3 - 1)));
}

TEST_CASE("the clones of a GPT layer") {
    using Counts = std::map<std::string, int>;
    const Config c = one_pass(small_gpt(1));
    CHECK(clones(programs_of(c)[0], Part::backward_input) == Counts{});
    CHECK(clones(programs_of(c)[0], Part::backward_weight) == Counts{});
    const Program selective = programs_of(remade(c, Granularity::selective))[0], full = programs_of(remade(c, Granularity::full))[0];
    CHECK(clones(selective, Part::backward_input) == Counts{{"gelu", 1}});  // its result takes the place of what it reads
    CHECK(clones(selective, Part::backward_weight) == Counts{{"norm", 2}});  // what these read stays for the norms' own gradients
    // the last product of a block is no one's need; its residual sum is the next block's input
    CHECK(clones(full, Part::backward_input) == Counts{{"norm", 1}, {"matmul", 4}, {"attention", 1}, {"residual_norm", 1}, {"matmul_gelu", 1}});
    CHECK(clones(full, Part::backward_weight) == Counts{});
    for (const Program& p : {selective, full})
        for (const Op& op : p.ops) {
            if (op.clone) CHECK(p.tables->name(op.unit) == "layers.0");
            for (const TensorId t : p.outputs(op)) CHECK(p.name(t).ends_with("~@0") == op.clone);
        }
    CHECK(text(full).find("layers.0  attention~(") != std::string::npos);
}

TEST_CASE("the clones of a Llama layer: rotary and swiglu; of a ring: its turns; of Megatron's gathers: the moves") {
    const auto count = [](const Program& p, Kind k) {
        int n = 0;
        for (const Op& op : p.ops) n += op.clone && op.kind == k;
        return n;
    };
    Config c = one_pass(small_llama(1));
    c.model.hidden_dropout = 0.1;
    const Program selective = programs_of(remade(c, Granularity::selective))[0];
    CHECK(count(selective, Kind::rotary) == 2);
    CHECK(count(selective, Kind::swiglu) == 1);
    CHECK(count(selective, Kind::dropout) == 0);
    CHECK(count(selective, Kind::matmul) == 0);
    CHECK(count(programs_of(remade(c, Granularity::full))[0], Kind::dropout) == 1);
    Config ring = remade(one_pass(on_grid(small_llama(1), 1, 1, 1, 3)), Granularity::full);
    CHECK(count(programs_of(ring)[0], Kind::attention) == 3);
    CHECK(count(programs_of(ring)[0], Kind::redistribute) == 2);
    for (const Granularity g : granularities) {
        const Config cut = remade(megatron(one_pass(on_grid(small_gpt(1), 1, 2, 1, 1))), g);
        CHECK(count(programs_of(cut)[0], Kind::redistribute) == (g == Granularity::full ? 3 : 2));
        CHECK(count(programs_of(remade(one_pass(on_grid(small_gpt(1), 1, 2, 1, 1)), g))[0], Kind::redistribute) == (g == Granularity::full ? 1 : 0));
    }
}

TEST_CASE("a clone stands behind what it is a clone of, in front of its use, and on the way of its gradients: block by block") {
    Config c = one_pass(small_gpt(5));
    for (const Granularity g : {Granularity::selective, Granularity::full}) {
        const Program p = programs_of(remade(c, g))[0];
        std::set<std::string> left;
        std::string unit;
        for (const Op& op : p.ops) {
            if (!backward(op)) continue;
            const std::string& now = p.tables->name(op.unit);
            if (now == unit) continue;
            CHECK(left.insert(now).second);  // no unit is come back to
            unit = now;
        }
        CHECK(left.size() == 7);
    }
}

TEST_CASE("a clone of the weight part has no other reader, and keeps less waiting than it makes") {
    for (const bool llama : {false, true})
        for (const Granularity g : granularities) {
            Config c = megatron(on_grid(llama ? small_llama(4) : small_gpt(4), 1, 2, 2, 1));
            c.pipeline.schedule = Schedule::zero_bubble;
            for (const Program& p : programs_of(remade(c, g))) {
                std::set<TensorId> stays;
                int clones = 0;
                for (const Op& op : p.ops) {
                    if (op.kind == Kind::split) stays.insert(p.outputs(op).begin(), p.outputs(op).end());
                    if (op.part == Part::backward_weight && !op.clone) stays.insert(p.inputs(op).begin(), p.inputs(op).end());
                }
                for (const Op& op : p.ops) {
                    if (!op.clone || op.part != Part::backward_weight) continue;
                    ++clones;
                    std::int64_t waiting = 0;
                    for (const TensorId t : p.inputs(op)) waiting += stays.contains(t) ? 0 : local_bytes(p.grid(), p.type(t));
                    CHECK(waiting < local_bytes(p.grid(), p.type(p.outputs(op)[0])));
                    stays.insert(p.outputs(op).begin(), p.outputs(op).end());
                    for (const Op& reader : p.ops)
                        for (const TensorId t : p.inputs(reader))
                            if (t == p.outputs(op)[0]) CHECK(reader.part == Part::backward_weight);
                }
                CHECK((clones > 0) == (g != Granularity::full));
            }
        }
}

TEST_CASE("peaks fall, from none to selective to full, under every schedule") {
    for (const auto& [schedule, stages] : {std::pair(Schedule::gpipe, 1), std::pair(Schedule::one_f_one_b, 1),
                                            std::pair(Schedule::interleaved, 2), std::pair(Schedule::zero_bubble, 1)})
        for (const bool llama : {false, true}) {
            Config c = on_grid(wide(llama ? small_llama(8) : small_gpt(8)), 1, 1, 2, 1);
            c.pipeline.schedule = schedule;
            c.pipeline.virtual_stages = stages;
            std::array<std::vector<Program>, 3> p;
            for (std::size_t g = 0; g < 3; ++g) p[g] = programs_of(remade(c, granularities[g]));
            for (std::size_t r = 0; r < 2; ++r) {
                const auto activations = [&](std::size_t g) { return p[g][r].peaks[0].books[static_cast<std::size_t>(Book::activations)]; };
                CAPTURE(static_cast<int>(c.pipeline.schedule));
                CAPTURE(llama);
                CAPTURE(r);
                // The last stage of a zero-bubble has no more than two microbatches' inputs of weight gradients, and those are not dropped.
                const bool waits = schedule == Schedule::zero_bubble && r == 1;
                CHECK(activations(1) < activations(0) + waits);
                CHECK((waits || activations(2) < activations(1)));
                CHECK(activations(2) < activations(0) + waits);
            }
        }
}

TEST_CASE("with full, a deep model holds its blocks' inputs and one block's inside") {
    const auto most = [](std::int64_t layers) { return held(programs_of(remade(one_pass(wide(small_gpt(layers))), Granularity::full))[0]).most; };
    const Config c = wide(small_gpt());
    CHECK(most(12) - most(11) == c.train.micro_batch_size * c.model.seq_length * c.model.hidden_size * 4);
}

TEST_CASE("FLOPs: the clones' own are what the hardware does more; of the model nothing changes") {
    for (const bool llama : {false, true}) {
        const Config c = on_grid(llama ? small_llama() : small_gpt(), 2, 1, 2, 1);
        std::array<double, 3> all{}, own{};
        for (std::size_t g = 0; g < 3; ++g) {
            const Config r = remade(c, granularities[g]);
            const Compiled compiled = compile(r, Purpose::training, {});
            all[g] = hardware_flops(compiled, compiled.tables->grid());
            for (const Program& p : compiled.programs)
                for (const Op& op : p.ops) own[g] += op.clone ? flops(p, op) * 2 : 0;  // two ranks each
            CHECK(model_flops(r) == model_flops(c));
        }
        CHECK(own[0] == 0);
        CHECK(all[1] == all[0]);
        CHECK(all[2] - all[0] == doctest::Approx(own[2]));
        // a block's forward without the product that leaves it, and causal attention
        const ModelConfig& m = c.model;
        const auto real = [](std::int64_t x) { return static_cast<double>(x); };
        const double tokens = real(c.train.global_batch_size * m.seq_length), h = real(m.hidden_size), s = real(m.seq_length);
        const double projections = 2 * h * real(m.head_dim) * real(2 * m.num_attention_heads + 2 * m.num_key_value_heads);
        const double mlp = 2 * h * real(m.ffn_hidden_size) * (llama ? 2 : 1), scores = 4 * h * (s + 1) / 2;
        CHECK(own[2] == doctest::Approx(tokens * real(m.num_layers) * (projections + mlp + scores)));
    }
}

TEST_CASE("evaluation makes nothing again") {
    for (const Program& p : compile(remade(megatron(on_grid(small_gpt(), 1, 2, 1, 1)), Granularity::full), Purpose::evaluation, {}).programs)
        for (const Op& op : p.ops) CHECK(!op.clone);
}
