#include "config_fixture.hpp"

#include "config/aliases.hpp"
#include "config/convert.hpp"
#include "config/keys.hpp"

#include <algorithm>
#include <set>

using namespace quadrille;
using namespace quadrille::input;

TEST_CASE("the table: unique keys in whole sections, each with a comment and a default that it takes") {
    std::set<std::string> paths;
    std::set<std::string> sections_seen;
    std::string section;
    for (const Key& key : keys()) {
        INFO(key.path());
        CHECK(paths.insert(key.path()).second);
        if (key.section != section) CHECK(sections_seen.insert(key.section).second);
        section = key.section;
        CHECK(find_key(key.path()) == &key);
        CHECK(!key.comment.empty());
        CHECK(!allowed(key).empty());
        CHECK((key.live() || !key.binding.set));
        if (key.live() && key.type != KeyType::choice) CHECK(static_cast<bool>(key.binding.set));
        Problems problems("", {key.fallback});
        const NodePtr node = read_yaml(key.fallback, 1, problems);
        REQUIRE(node != nullptr);
        CHECK(convert(key, *node).problem == "");
    }
    CHECK(sections().size() == 17);
    CHECK(find_key("model") == nullptr);
    CHECK(find_key("model.") == nullptr);
    CHECK(find_key("num_layers") == nullptr);
    CHECK(find_key("comm.compression.method") != nullptr);
}

TEST_CASE("the table's defaults are those of Config") {
    const Config fresh;
    for (const Key& key : keys()) {
        if (!key.binding.set || key.fallback == "auto" || key.fallback == "null" || key.type == KeyType::paths ||
            key.type == KeyType::text)
            continue;
        INFO(key.path());
        Problems problems("", {key.fallback});
        CHECK(convert(key, *read_yaml(key.fallback, 1, problems)).value == key.binding.get(fresh));
    }
}

TEST_CASE("every value that a key takes reaches Config and comes back") {
    const auto other = [](const Key& key) -> Value {
        switch (key.type) {
            case KeyType::boolean: return key.fallback == "false";
            case KeyType::integer:
            case KeyType::bytes: return std::int64_t{3};
            case KeyType::number: return 0.625 + key.range.least;
            case KeyType::choice: return key.choices.back();
            case KeyType::text: return std::string("somewhere");
            case KeyType::paths: return std::vector<std::string>{"/a", "/b"};
            case KeyType::integers: return std::vector<std::int64_t>{1, 2};
            case KeyType::weights: return std::vector<double>{0.5, 2};
            case KeyType::order: return std::vector<std::string>{"pp", "dp", "sp", "tp"};
            case KeyType::map: return std::map<std::string, std::string>{{"a name", "a text"}};
        }
        return {};
    };
    const Config fresh;
    std::size_t changed = 0;
    for (const Key& key : keys()) {
        if (!key.binding.set) continue;
        INFO(key.path());
        Config config;
        key.binding.set(config, other(key));
        CHECK(key.binding.get(config) == other(key));
        changed += !(config == fresh);
        for (const Key& unrelated : keys())  // and no other key's place
            if (&unrelated != &key && unrelated.binding.set) CHECK(unrelated.binding.get(config) == unrelated.binding.get(fresh));
    }
    CHECK(changed >= 60);
}

TEST_CASE("aliases: every target is a key or a section, none hides a key of ours") {
    std::set<std::string_view> foreign;
    const std::vector<std::string> groups = sections();
    for (const Alias& alias : aliases()) {
        INFO(alias.foreign);
        CHECK(foreign.insert(alias.foreign).second);
        CHECK((alias.key.empty() || find_key(alias.key) != nullptr ||
               std::find(groups.begin(), groups.end(), alias.key) != groups.end()));
        CHECK((!alias.key.empty() || !alias.remark.empty()));
        CHECK(find_key(alias.foreign) == nullptr);
        for (const char c : alias.foreign)
            CHECK((std::islower(static_cast<unsigned char>(c)) || std::isdigit(static_cast<unsigned char>(c)) || c == '_' ||
                   c == '.'));
    }
}

TEST_CASE("aliases of values: every target is a choice of some key, and the foreign name of none of those") {
    for (const ChoiceAlias& alias : choice_aliases()) {
        INFO(alias.foreign);
        const auto has = [](const Key& key, std::string_view word) {
            const auto in = [&](const std::vector<std::string>& list) { return std::find(list.begin(), list.end(), word) != list.end(); };
            return in(key.choices) || in(key.later);
        };
        int keys_with_it = 0;
        for (const Key& key : keys()) {
            keys_with_it += has(key, alias.ours);
            CHECK_FALSE((has(key, alias.ours) && has(key, alias.foreign)));
        }
        CHECK((keys_with_it > 0 || alias.ours.empty()));
    }
}

TEST_CASE("hints for names of other trainers") {
    const std::pair<const char*, const char*> cases[] = {
        {"grid.tensor_model_parallel_size", "grid.tp"},
        {"tensor-model-parallel-size", "grid.tp"},
        {"--tensor-model-parallel-size", "grid.tp"},
        {"zero_optimization.stage", "sharding.zero_stage"},
        {"train.zero_optimization.stage", "sharding.zero_stage"},
        {"num_hidden_layers", "model.num_layers"},
        {"model.intermediate_size", "model.ffn_hidden_size"},
        {"rms_norm_eps", "model.norm_eps"},
        {"rope_theta", "model.rotary_base"},
        {"torch_dtype", "train.precision"},
        {"n_embd", "model.hidden_size"},
        {"block_size", "model.seq_length"},
        {"aio.block_size", "offload.block_size"},
        {"grid.cp", "grid.sp"},
        {"context_parallel_size", "grid.sp"},
        {"train_micro_batch_size_per_gpu", "train.micro_batch_size"},
        {"gradient_clipping", "train.clip_grad"},
        {"training.local_batch_size", "train.micro_batch_size"},
        {"parallelism.pp_engine", "pipeline.schedule"},
        {"optimizer.params.betas", "optimizer.beta1"},
        {"bf16.enabled", "train.precision"},
        {"fp16.enabled", "precision: fp16"},
        {"fp16.loss_scale", "loss_scale.initial? (always dynamic)"},
        {"fp16.initial_scale_power", "loss_scale.initial? (the scale, not its logarithm)"},
        {"fp16.loss_scale_window", "loss_scale.window"},
        {"--min-loss-scale", "loss_scale.minimum"},
        {"fp16.hysteresis", "halves at every overflow"},
        {"checkpoint.folder", "checkpoint.directory"},
        {"data-path", "data.train"},
        {"untie_embeddings_and_output_weights", "the opposite: true there is false here"},
        {"make_vocab_size_divisible_by", "padded to a multiple of tp inside"},
        {"model.num_layer", "model.num_layers"},
        {"model.nm_layers", "model.num_layers"},
        {"train.lr", "it belongs elsewhere: optimizer.lr"},
        {"num_layers", "it belongs elsewhere: model.num_layers"},
        {"interval", "checkpoint.interval or evaluation.interval"},
        {"modle", "model"},
        {"Model.Num_Layers", "model.num_layers"},
        {"training", "train"},
        {"optimiser", "optimizer"},
        {"out_dir", "output.directory"},
        {"sharding.stage", "did you mean sharding.zero_stage?"},
        {"zero.stage", "did you mean sharding.zero_stage?"},
        {"grid.tensor", "did you mean grid.tp?"},
        {"model.hidden", "did you mean model.hidden_size?"},
        {"distributed_timeout_minutes", "comm.watchdog? (in seconds)"},
        {"--distributed-optimizer", "sharding.zero_stage? (zero_stage: 1)"},
        {"tokenizer_type", "there is no tokenizer"},
        {"optimizer.params", "its keys stand in optimizer itself"},
    };
    for (const auto& hint : cases) {
        INFO(hint.first);
        check_has(key_hint(hint.first), hint.second);
    }
    CHECK(key_hint("model.qwertyuiop_asdf") == "");
    CHECK(key_hint("") == "");
    CHECK(key_hint(".") == "");
    CHECK(key_hint(std::string(100000, 'x')) == "");
}

TEST_CASE("hints for values") {
    const std::pair<const char*, std::pair<const char*, const char*>> cases[] = {
        {"model.activation", {"silu", "swiglu"}},        {"model.activation", {"GELU", "gelu"}},
        {"model.normalization", {"RMSNorm", "rmsnorm"}}, {"model.position_embedding", {"rotary", "rope"}},
        {"pipeline.schedule", {"1F1B", "1f1b"}},         {"pipeline.schedule", {"Interleaved1F1B", "interleaved"}},
        {"pipeline.schedule", {"zb-h1", "zero-bubble"}}, {"pipeline.schedule", {"zero_bubble", "zero-bubble"}},
        {"pipeline.schedule", {"afab", "gpipe"}},        {"train.precision", {"bfloat16", "bf16"}},
        {"train.precision", {"half", "fp16"}},           {"train.precision", {"float32", "fp32"}},        {"optimizer.type", {"Adam", "adamw"}},
        {"optimizer.lr_schedule", {"cosin", "cosine"}},  {"data.dtype", {"u16", "uint16"}},
        {"checkpoint.resume", {"no", "none"}},
    };
    for (const auto& hint : cases) {
        INFO(hint.first);
        const auto& [written, meant] = hint.second;
        CHECK(choice_hint(*find_key(hint.first), written) == fmt::format("; did you mean {}?", meant));
    }
    for (const char* other : {"relu", "ReLU", "geglu", "reglu"})  // not the same thing
        CHECK(choice_hint(*find_key("model.activation"), other) == "");
    CHECK(nearest("abc", {"xyz", "abd", "ab"}) == "abd");
    CHECK(nearest("sieze", {"seize", "size"}).has_value());
    CHECK_FALSE(nearest("q", {"dp", "tp"}).has_value());
}
