// Low-rank adapters: every grid gives the numbers of one rank in float64, gradients are the loss's, and nothing is made, kept or sent for what
// is frozen.
#include "compile_strategies.hpp"
#include "config/lora.hpp"
#include "ir/table.hpp"
#include "model/model.hpp"
#include "plan/plan.hpp"

#include <set>

using namespace quadrille;
using namespace quadrille::test;

namespace {

auto stage(int zero, int shard_size = 0, bool kept = false) {
    return [=](Config& c) {
        c.sharding.zero_stage = zero;
        c.sharding.shard_size = shard_size;
        c.sharding.keep_gathered = kept;
    };
}

std::vector<Strategy> strategies() {
    const auto zero_bubble = scheduled(Schedule::zero_bubble);
    const Config gpt = with(small_gpt(), adapted()), llama = with(small_llama(), adapted()), deep = with(small_gpt(4), adapted());
    return {
        {"one rank", gpt},
        {"one rank llama, q and v", with(small_llama(), adapted({"q", "v"}))},
        {"alpha = rank: no scale", with(gpt, [](Config& c) { c.lora.alpha = 3; })},
        {"tp 2", on_grid(gpt, 1, 2, 1, 1)},
        {"tp 3, row parallel alone", on_grid(with(small_gpt(), adapted({"o", "down"})), 1, 3, 1, 1)},
        {"tp 2 megatron", with(on_grid(gpt, 1, 2, 1, 1), megatron)},
        {"tp 6 as 2 x 3 llama", on_grid(llama, 1, 6, 1, 1)},
        {"tp 6 as 2 x 3 llama megatron", with(on_grid(llama, 1, 6, 1, 1), megatron)},
        {"dp 4", on_grid(gpt, 4, 1, 1, 1)},
        {"sp 3 ring documents dropout", with(with(on_grid(llama, 1, 1, 1, 3), documents), dropped)},
        {"sp 3 ring, q alone: nobody wants the first keys' and values' gradients", on_grid(with(small_llama(), adapted({"q"})), 1, 1, 1, 3)},
        {"sp 2 ring bf16, q and v", with(on_grid(with(small_llama(), adapted({"q", "v"})), 1, 1, 1, 2), in_bf16)},
        {"sp 2 tp 2 ulysses megatron, o", with(with(on_grid(with(small_llama(), adapted({"o", "layers.1.mlp.up"})), 1, 2, 1, 2), ulysses), megatron)},
        {"sp 3 tp 2 ulysses megatron dropout", with(with(with(on_grid(gpt, 1, 2, 1, 3), ulysses), megatron), dropped)},
        {"sp 2 tp 2 dp 2 megatron", with(on_grid(llama, 2, 2, 1, 2), megatron)},
        {"pp 2 gpipe, 2 chunks", with(on_grid(deep, 1, 1, 2, 1), scheduled(Schedule::gpipe, 2))},
        {"pp 4 1f1b", on_grid(deep, 1, 1, 4, 1)},
        {"pp 2 interleaved", with(on_grid(deep, 1, 1, 2, 1), scheduled(Schedule::interleaved, 2))},
        {"pp 3 zero-bubble tied bf16", with(with(on_grid(deep, 1, 1, 3, 1), zero_bubble), in_bf16)},
        {"pp 4 zero-bubble, the first layer alone", with(on_grid(with(small_gpt(4), adapted({"layers.0"})), 1, 1, 4, 1), zero_bubble)},
        {"pp 4 1f1b, the last layer alone", on_grid(with(small_gpt(4), adapted({"layers.3"})), 1, 1, 4, 1)},
        {"pp 4 zero-bubble, one matrix in the middle", with(on_grid(with(small_llama(4), adapted({"layers.2.mlp.gate"})), 1, 1, 4, 1), zero_bubble)},
        {"pp 2 interleaved dp 2 stage 2, chunk 1 alone",
         with(with(on_grid(with(small_gpt(4), adapted({"1.attention"})), 2, 1, 2, 1), scheduled(Schedule::interleaved, 2)), stage(2))},
        {"stage 1 dp 4", with(on_grid(gpt, 4, 1, 1, 1), stage(1))},
        {"stage 2 dp 2 sp 2", with(on_grid(llama, 2, 1, 1, 2), stage(2))},
        {"stage 3 dp 2 tp 2 megatron", with(with(on_grid(gpt, 2, 2, 1, 1), megatron), stage(3))},
        {"stage 3 dp 4 as 2 x 2, full", with(with(on_grid(gpt, 4, 1, 1, 1), stage(3, 2)), full)},
        {"stage 3 dp 2 pp 2 zero-bubble, kept", with(with(on_grid(deep, 2, 1, 2, 1), zero_bubble), stage(3, 2, true))},
        {"full dropout", with(with(gpt, dropped), full)},
        {"selective tp 2 sp 2 megatron dropout", with(with(with(on_grid(gpt, 1, 2, 1, 2), megatron), dropped), selective)},
        {"full pp 2 zero-bubble megatron llama", with(with(with(on_grid(with(small_llama(4), adapted()), 1, 2, 2, 1), zero_bubble), megatron), full)},
        {"all axes", with(with(on_grid(deep, 2, 2, 2, 2), dropped), zero_bubble)},
    };
}

Program program_of(const Config& c, std::size_t coordinate = 0) { return compile(c, Purpose::training, {}).programs[coordinate]; }

bool is_backward(const Op& op) { return op.part == Part::backward_input || op.part == Part::backward_weight; }

// Ops of the backward pass by unit and kind, of the first microbatch.
std::multiset<std::pair<std::string, Kind>> backward_of(const Program& p) {
    std::multiset<std::pair<std::string, Kind>> out;
    for (const Op& op : p.ops)
        if (is_backward(op) && op.microbatch == 0) out.insert({p.tables->name(op.unit), op.kind});
    return out;
}

// Elements that the first microbatch's collectives over tp move, by part; by their larger side.
std::map<Part, std::int64_t> moved_over_tensor(const Program& p) {
    std::map<Part, std::int64_t> out;
    for (const Op& op : p.ops)
        if (op.kind == Kind::redistribute && op.queue == Queue::collective && op.action >= 0 && op.microbatch == 0)
            out[op.part] += std::max(local_count(p.grid(), p.type(p.inputs(op)[0])), local_count(p.grid(), p.type(p.outputs(op)[0])));
    return out;
}

}  // namespace

TEST_CASE("every grid gives the numbers of one rank") { check_numbers(strategies()); }

TEST_CASE("evaluation gives the loss of training's first step, and changes nothing") { check_evaluation(strategies()); }

TEST_CASE("the adapters' gradient is the loss's, and frozen weights stay as they are") {
    for (const Config& base : {small_gpt(), small_llama()})
        for (const auto& targets : {std::vector<std::string>{"all"}, {"q", "down"}, {"layers.1.attention.o"}}) {
            const Config c = with(base, adapted(targets));
            check_gradient(c);
            Settings s;
            s.vocab = c.model.vocab_size;
            s.steps = 0;
            const Program one = program_of(c);
            const auto before = interpret({one}, s).weights;
            s.steps = 2;
            const auto after = interpret({one}, s).weights;
            for (const Parameter& q : one.parameters) CHECK((before.at(q.name) == after.at(q.name)) == !q.trained);
        }
}

TEST_CASE("the targets' names are those of the model's matrices, and so are their sizes") {
    for (const Config& c : {small_gpt(), small_llama()}) {
        const Model model = build_model(c, std::make_shared<Tables>(grid_of(c)));
        std::map<std::string, std::int64_t> sizes;
        for (const Parameter& q : model.parameters)
            if (q.name.starts_with("layers.1.") && q.name.ends_with(".weight") && q.shape.size() > 1)
                for (sizes[q.name] = 1; const std::int64_t n : q.shape) sizes[q.name] *= n;
        std::map<std::string, std::int64_t> named;
        for (const LinearMatrix& x : linear_matrices(c.model, 1)) named[x.name + ".weight"] = x.in * x.out;
        CHECK(named == sizes);
        for (const LinearMatrix& x : linear_matrices(c.model, 1)) {
            const Config one = with(c, adapted({x.name}));
            std::int64_t trained = 0;
            for (const Parameter& q : build_model(one, std::make_shared<Tables>(grid_of(one))).parameters) {
                if (!q.trained) continue;
                CHECK((q.name == x.name + ".lora_a" || q.name == x.name + ".lora_b"));
                CHECK(q.decays);
                CHECK((q.init == Init::uniform) == q.name.ends_with("_a"));
                if (q.init == Init::uniform) CHECK(q.init_bound == doctest::Approx(1 / std::sqrt(static_cast<double>(x.in))));
                std::int64_t n = 1;
                for (const std::int64_t d : q.shape) n *= d;
                trained += n;
            }
            CHECK(trained == x.adapter(3));
        }
    }
}

TEST_CASE("a frozen unit has its weights and nothing else: no gradient, no state, no product for its gradient") {
    for (const Config& base : {small_gpt(3), with(small_llama(3), in_bf16)}) {
        const Program p = program_of(on_grid(with(base, adapted()), 2, 2, 1, 1));
        std::map<int, std::vector<StateKind>> held;  // by unit
        for (const Buffer& b : p.buffers) {
            if (b.persistent || b.book == Book::gradients) held[b.unit].push_back(b.state);  // a gradient on its way is of no unit, and there is none
        }
        using enum StateKind;
        const std::vector<StateKind> fp32 = {weight, m, v, gradient}, bf16 = {weight, master, m, v, gradient};
        for (std::size_t u = 0; u < p.flats.size(); ++u) {
            const Flat& f = p.flats[u];
            const bool trained = f.unit.ends_with(".lora");
            CHECK(held[static_cast<int>(u)] == (!trained ? std::vector{weight} : base.train.precision == Precision::bf16 ? bf16 : fp32));
            for (const FlatSegment& s : f.segments) CHECK(p.parameters[static_cast<std::size_t>(s.parameter)].trained == trained);
        }
        std::int64_t products = 0;
        for (const Op& op : p.ops) {
            if (op.part == Part::backward_weight && op.microbatch == 0) products += op.kind == Kind::matmul;
            CHECK(op.kind != Kind::norm_dw);
            CHECK(op.kind != Kind::embedding_dw);
            CHECK(op.kind != Kind::sum);
        }
        CHECK(products == 2 * 3 * std::ssize(linear_matrices(base.model, 0)));
    }
}

TEST_CASE("the verifier knows what is trained") {
    const Subject subject(with(small_gpt(), adapted()));
    for (const char* name : {"layers.0.attention.q.lora_a", "layers.1.mlp.up.weight", "embedding.weight"}) {
        std::vector<Program> programs = subject.compiled.programs;
        CHECK(verify(programs, subject.one).empty());
        for (Parameter& q : programs[0].parameters)
            if (q.name == name || (q.adapter && std::string_view(name).ends_with("lora_a") && q.unit == "layers.0.lora")) q.trained = !q.trained;
        const Faults faults = verify(programs, subject.one);
        REQUIRE(!faults.empty());
        const bool frozen = std::string_view(name).ends_with("lora_a");
        CHECK(faults[0].reason.find(frozen ? "is frozen, and was updated" : "was not updated") != std::string::npos);
    }
}

TEST_CASE("no gradient is made below the first adapter, nor of what no adapter needs") {
    Config c = with(small_gpt(4), adapted({"layers.2.mlp.down"}));
    auto made = backward_of(program_of(c));
    for (const auto& [unit, kind] : made) CHECK((unit == "head" || unit == "layers.3" || unit == "layers.2"));
    const auto of = [&](const char* unit, Kind kind) { return made.count({unit, kind}); };
    CHECK(of("layers.3", Kind::attention_dx) == 1);
    CHECK(of("layers.3", Kind::norm_dx) == 2);
    CHECK(of("layers.3", Kind::matmul) == 6);          // inputs' gradients alone
    CHECK(of("layers.2", Kind::attention_dx) == 0);
    CHECK(of("layers.2", Kind::norm_dx) == 0);
    CHECK(of("layers.2", Kind::gelu_dx) == 0);
    CHECK(of("layers.2", Kind::matmul) == 3);          // of u, of B and of A
    CHECK(of("layers.2", Kind::scale) == 1);
    made = backward_of(program_of(with(small_gpt(2), adapted({"q"}))));
    CHECK(of("layers.0", Kind::attention_dx) == 1);
    CHECK(of("layers.0", Kind::norm_dx) == 1);         // of the MLP's; the embedding below the other wants nothing
    CHECK(of("layers.1", Kind::norm_dx) == 2);
    CHECK(of("embedding", Kind::matmul) == 0);
}

TEST_CASE("stages without anything trained: none before the first adapter goes backward, all join the norm") {
    for (const Schedule s : {Schedule::gpipe, Schedule::one_f_one_b, Schedule::zero_bubble}) {
        const Config c = with(on_grid(with(small_gpt(4), adapted({"layers.2"})), 1, 1, 4, 1), scheduled(s));
        for (std::size_t r = 0; r < 4; ++r) {
            const Program p = program_of(c, r);
            CAPTURE(r);
            const auto count = [&p](auto which) { return std::count_if(p.ops.begin(), p.ops.end(), which); };
            CHECK((count(is_backward) > 0) == (r >= 2));
            CHECK((count([&](const Op& op) { return op.kind == Kind::send && p.attributes(op).gradient; }) > 0) == (r == 3));
            CHECK(count([](const Op& op) { return op.kind == Kind::adamw; }) == (r == 2));
            CHECK(p.norm >= 0);
        }
    }
}

TEST_CASE("over tp adapters move no activation; where the sequence is cut over it, u is gathered for each column-parallel one") {
    for (const Config& base : {small_gpt(), small_llama()}) {
        const Config plain = on_grid(base, 1, 2, 1, 1), lora = with(plain, adapted());
        const auto without = moved_over_tensor(program_of(plain)), now = moved_over_tensor(program_of(lora));
        CHECK(now.at(Part::forward) == without.at(Part::forward));
        CHECK(now.at(Part::backward_input) < without.at(Part::backward_input));  // the embedding wants no gradient
        CHECK(!now.contains(Part::backward_weight));
        const auto cut = moved_over_tensor(program_of(with(plain, megatron))), both = moved_over_tensor(program_of(with(lora, megatron)));
        const std::int64_t tokens = base.train.micro_batch_size * base.model.seq_length;
        const std::int64_t columns = base.model.num_layers * (std::ssize(linear_matrices(base.model, 0)) - 2);
        CHECK(both.at(Part::forward) == cut.at(Part::forward) + columns * tokens * lora.lora.rank);
    }
}

TEST_CASE("bytes of state at dp 4: the frozen weights' own and, of the adapters, the table of the architecture") {
    constexpr double n = 4;
    struct Row { bool half, gradients; double frozen; std::array<double, 4> trained; };
    for (const bool llama : {false, true})
        for (const Row& row : {Row{false, false, 4, {16, 8 + 8 / n, 4 + 12 / n, 16 / n}}, Row{true, false, 2, {18, 6 + 12 / n, 2 + 16 / n, 18 / n}},
                               Row{true, true, 2, {16, 4 + 12 / n, 2 + 14 / n, 16 / n}}})
            for (int zero = 0; zero < 4; ++zero) {
                Config c = on_grid(llama ? small_llama(3) : small_gpt(3), 4, 1, 1, 1);  // no unit is padded; nothing of it is allocated
                c.model.hidden_size = c.model.ffn_hidden_size = c.model.vocab_size = 4096;
                c.model.num_attention_heads = 4;
                c.model.num_key_value_heads = llama ? 2 : 4;
                c.model.head_dim = 1024;
                c.lora = {4, 4, {"all"}};
                c.train.precision = row.half ? Precision::bf16 : Precision::fp32;
                c.train.gradient_dtype = row.gradients ? Precision::bf16 : Precision::fp32;
                c.sharding.zero_stage = zero;
                const Plan p = make_plan(c, {}, {});
                std::int64_t trained = 0;
                for (std::int64_t l = 0; l < 3; ++l)
                    for (const LinearMatrix& x : linear_matrices(c.model, l)) trained += x.adapter(4);
                CHECK(p.trained == trained);
                const StateBytes& s = p.programs[0].states;
                const double frozen = row.frozen / (zero == 3 ? n : 1) * static_cast<double>(p.parameters - trained);
                const double of_trained = row.trained[static_cast<std::size_t>(zero)] * static_cast<double>(trained);
                CHECK(static_cast<double>(s.weights + s.masters + s.moments + s.gradients) == frozen + of_trained);
                CHECK(text(p).find(fmt::format("parameters  {}, {} of them trained", p.parameters, trained)) != std::string::npos);
            }
}

TEST_CASE("FLOPs: twice the forward products for what is frozen, three times for adapters, less what nobody wants") {
    Config c = small_llama(3);
    c.model.hidden_size = 256, c.model.head_dim = 32, c.model.num_attention_heads = 8, c.model.num_key_value_heads = 4, c.model.ffn_hidden_size = 768;
    const auto matrices = [&](std::int64_t layer, auto wanted) {
        double n = 0;
        for (const LinearMatrix& x : linear_matrices(c.model, layer))
            if (wanted(x)) n += 2.0 * static_cast<double>(x.in * x.out);
        return n;
    };
    const auto any = [](const LinearMatrix&) { return true; };
    const double tokens = static_cast<double>(c.train.global_batch_size * c.model.seq_length), s = static_cast<double>(c.model.seq_length);
    const double scores = 4 * s * 256, head = 2.0 * 256 * static_cast<double>(c.model.vocab_size), causal = (s + 1) / (2 * s);
    for (const std::int64_t first : {0, 1}) {
        c.lora = {8, 8, first == 0 ? std::vector<std::string>{"all"} : std::vector<std::string>{"layers.1", "layers.2"}};
        double adapters = 0, first_inputs = 0;
        for (std::int64_t l = first; l < 3; ++l)
            for (const LinearMatrix& x : linear_matrices(c.model, l)) adapters += 2.0 * static_cast<double>(x.adapter(8));
        const double below = static_cast<double>(first) * matrices(0, any), above = static_cast<double>(3 - first) * matrices(0, any);
        const double all_scores = static_cast<double>(first) * scores + 3 * static_cast<double>(3 - first) * scores;
        CHECK(model_flops(c) == doctest::Approx(tokens * (below + 2 * (above + head) + all_scores + 3 * adapters)));
        // The first adapters read what nobody wants a gradient of.
        const auto qkv = [](const LinearMatrix& x) { return x.name.ends_with("q") || x.name.ends_with("k") || x.name.ends_with("v"); };
        first_inputs = matrices(first, qkv) + 3 * 2.0 * 8 * 256;
        const double products = below + 2 * (above + head) + 3 * adapters - first_inputs;
        const double attention = scores * causal * (3 + 2.5 * static_cast<double>(3 - first));
        CHECK(make_plan(c, {}, {}).hardware_flops == doctest::Approx(tokens * (products + attention)).epsilon(1e-9));
    }
}
