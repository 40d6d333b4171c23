#include "exchange/model_json.hpp"

#include "base/error.hpp"
#include "exchange/json.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

namespace quadrille {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::int64_t most_bytes = std::int64_t{16} << 20;  // of a config.json; more is a wrong file

// The keys of one object. What is wrong is collected; a key that is null counts as missing.
class Keys {
  public:
    Keys(const json& object, std::vector<std::string>& problems) : object_(object), problems_(problems) {}

    const json* find(const char* key) const {
        const auto at = object_.find(key);
        return at == object_.end() || at->is_null() ? nullptr : &*at;
    }
    std::int64_t count(const char* key, std::int64_t usual) {
        const json* v = find(key);
        if (!v) return usual;
        constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
        if (!v->is_number_unsigned() || v->get<std::uint64_t>() > most) return wrong(key, *v, "a count", usual);
        return static_cast<std::int64_t>(v->get<std::uint64_t>());
    }
    double number(const char* key, double usual) {
        const json* v = find(key);
        if (!v) return usual;
        return v->is_number() ? v->get<double>() : wrong(key, *v, "a number", usual);
    }
    bool flag(const char* key, bool usual) {
        const json* v = find(key);
        if (!v) return usual;
        return v->is_boolean() ? v->get<bool>() : wrong(key, *v, "true or false", usual);
    }
    std::string word(const char* key, const std::string& usual) {
        const json* v = find(key);
        if (!v) return usual;
        return v->is_string() ? v->get<std::string>() : wrong(key, *v, "a word", usual);
    }
    void want_flag(const char* key, bool usual, bool wanted) {
        if (flag(key, usual) != wanted) add(fmt::format("{} is {}, allowed: {}", key, !wanted, wanted));
    }
    void want_word(const char* key, const std::string& usual, const std::vector<std::string>& allowed) {
        const std::string found = word(key, usual);
        if (std::find(allowed.begin(), allowed.end(), found) == allowed.end())
            add(fmt::format("{} is \"{}\", allowed: {}", key, found, fmt::join(allowed, ", ")));
    }
    void want_none(const char* key, const char* what) {
        if (find(key)) add(fmt::format("{} is {}, and {} is not in this program's models", key, find(key)->dump(), what));
    }
    void add(std::string problem) { problems_.push_back(std::move(problem)); }

  private:
    template <class T>
    T wrong(const char* key, const json& found, const char* allowed, T usual) {
        add(fmt::format("{} is {}, allowed: {}", key, found.dump(), allowed));
        return usual;
    }

    const json& object_;
    std::vector<std::string>& problems_;
};

ModelConfig gpt2_of(Keys keys) {
    ModelConfig m;
    m.vocab_size = keys.count("vocab_size", 50257);
    m.seq_length = keys.count("n_positions", 1024);
    m.hidden_size = keys.count("n_embd", 768);
    m.num_layers = keys.count("n_layer", 12);
    m.num_attention_heads = m.num_key_value_heads = keys.count("n_head", 12);
    m.head_dim = m.num_attention_heads > 0 ? m.hidden_size / m.num_attention_heads : 0;
    if (m.head_dim * m.num_attention_heads != m.hidden_size)
        keys.add(fmt::format("n_head is {}, which does not divide n_embd {}", m.num_attention_heads, m.hidden_size));
    m.ffn_hidden_size = keys.count("n_inner", m.hidden_size <= std::numeric_limits<std::int64_t>::max() / 4 ? 4 * m.hidden_size : 0);
    m.norm_eps = keys.number("layer_norm_epsilon", 1e-5);
    m.hidden_dropout = keys.number("resid_pdrop", 0.1);
    if (const double other = keys.number("embd_pdrop", 0.1); other != m.hidden_dropout)
        keys.add(fmt::format("embd_pdrop is {} and resid_pdrop {}, allowed: the same rate, which is model.hidden_dropout", other, m.hidden_dropout));
    m.attention_dropout = keys.number("attn_pdrop", 0.1);
    m.init_std = keys.number("initializer_range", 0.02);
    m.tie_word_embeddings = keys.flag("tie_word_embeddings", true);
    keys.want_word("activation_function", "gelu_new", {"gelu_new", "gelu_pytorch_tanh"});
    keys.want_flag("scale_attn_weights", true, true);
    keys.want_flag("scale_attn_by_inverse_layer_idx", false, false);
    keys.want_flag("add_cross_attention", false, false);
    return m;
}

// The base of the rotary angles. Until version 5 of the reference library rope_theta stood by itself, and rope_scaling changed the angles.
double rotary_base_of(Keys& keys, std::vector<std::string>& problems) {
    double base = keys.number("rope_theta", 10000);
    for (const char* key : {"rope_parameters", "rope_scaling"}) {
        const json* found = keys.find(key);
        if (!found) continue;
        if (!found->is_object()) {
            keys.add(fmt::format("{} is {}, allowed: an object", key, found->dump()));
            continue;
        }
        Keys inner(*found, problems);
        const std::string type = inner.word("rope_type", inner.word("type", "default"));
        if (type != "default") keys.add(fmt::format("{} has rope_type \"{}\", allowed: default", key, type));
        base = inner.number("rope_theta", base);
        if (inner.number("partial_rotary_factor", 1) != 1) keys.add(fmt::format("{} has a partial_rotary_factor, allowed: 1", key));
    }
    return base;
}

ModelConfig llama_of(Keys keys, std::vector<std::string>& problems) {
    ModelConfig m;
    m.normalization = Normalization::rmsnorm;
    m.activation = Activation::swiglu;
    m.position_embedding = PositionEmbedding::rope;
    m.vocab_size = keys.count("vocab_size", 32000);
    m.seq_length = keys.count("max_position_embeddings", 2048);
    m.hidden_size = keys.count("hidden_size", 4096);
    m.num_layers = keys.count("num_hidden_layers", 32);
    m.num_attention_heads = keys.count("num_attention_heads", 32);
    m.num_key_value_heads = keys.count("num_key_value_heads", m.num_attention_heads);
    m.head_dim = keys.count("head_dim", m.num_attention_heads > 0 ? m.hidden_size / m.num_attention_heads : 0);
    m.ffn_hidden_size = keys.count("intermediate_size", 11008);
    m.norm_eps = keys.number("rms_norm_eps", 1e-6);
    m.attention_dropout = keys.number("attention_dropout", 0);
    m.init_std = keys.number("initializer_range", 0.02);
    m.tie_word_embeddings = keys.flag("tie_word_embeddings", false);
    m.rotary_base = rotary_base_of(keys, problems);
    m.bias = keys.flag("attention_bias", false);
    if (const bool mlp = keys.flag("mlp_bias", false); mlp != m.bias)
        keys.add(fmt::format("attention_bias is {} and mlp_bias {}, allowed: the same, which is model.bias", m.bias, mlp));
    keys.want_word("hidden_act", "silu", {"silu", "swish"});
    keys.want_none("sliding_window", "a window of attention");
    if (const double part = keys.number("partial_rotary_factor", 1); part != 1)
        keys.add(fmt::format("partial_rotary_factor is {}, allowed: 1", part));
    return m;
}

std::string their_dtype(DType t) { return t == DType::f32 ? "float32" : t == DType::f16 ? "float16" : "bfloat16"; }

}  // namespace

TheirModel read_model_json(const fs::path& file) {
    const json found = read_json(file, most_bytes);
    if (!found.is_object()) throw Error(Exit::refused, fmt::format("{}: is no object", file.string()));
    std::vector<std::string> problems;
    Keys keys(found, problems);
    keys.want_none("quantization_config", "quantization");
    TheirModel out;
    const std::string type = keys.word("model_type", "");
    if (type == name_of(Family::gpt2)) {
        out = {Family::gpt2, gpt2_of(keys)};
    } else if (type == name_of(Family::llama)) {
        out = {Family::llama, llama_of(keys, problems)};
    } else {
        keys.add(fmt::format("model_type is \"{}\", allowed: gpt2 and llama", type));
    }
    if (problems.empty()) return out;
    std::string text;
    for (const std::string& p : problems) text += fmt::format("{}{}: {}", text.empty() ? "" : "\n", file.string(), p);
    throw Error(Exit::refused, text);
}

std::string model_json(Family family, const ModelConfig& m, DType dtype, std::optional<std::int64_t> end_of_document) {
    ordered_json j;
    j["architectures"] = {family == Family::gpt2 ? "GPT2LMHeadModel" : "LlamaForCausalLM"};
    j["model_type"] = name_of(family);
    j["vocab_size"] = m.vocab_size;
    if (family == Family::gpt2) {
        j["n_positions"] = m.seq_length;
        j["n_embd"] = m.hidden_size;
        j["n_layer"] = m.num_layers;
        j["n_head"] = m.num_attention_heads;
        j["n_inner"] = m.ffn_hidden_size;
        j["activation_function"] = "gelu_new";
        j["layer_norm_epsilon"] = m.norm_eps;
        for (const char* key : {"resid_pdrop", "embd_pdrop"}) j[key] = m.hidden_dropout;
        j["attn_pdrop"] = m.attention_dropout;
    } else {
        j["max_position_embeddings"] = m.seq_length;
        j["hidden_size"] = m.hidden_size;
        j["intermediate_size"] = m.ffn_hidden_size;
        j["num_hidden_layers"] = m.num_layers;
        j["num_attention_heads"] = m.num_attention_heads;
        j["num_key_value_heads"] = m.num_key_value_heads;
        j["head_dim"] = m.head_dim;
        j["hidden_act"] = "silu";
        j["rms_norm_eps"] = m.norm_eps;
        j["rope_theta"] = m.rotary_base;
        j["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", m.rotary_base}};
        for (const char* key : {"attention_bias", "mlp_bias"}) j[key] = m.bias;
        j["attention_dropout"] = m.attention_dropout;
    }
    j["initializer_range"] = m.init_std;
    j["tie_word_embeddings"] = m.tie_word_embeddings;
    j["bos_token_id"] = nullptr;
    j["eos_token_id"] = end_of_document ? ordered_json(*end_of_document) : ordered_json(nullptr);
    j["torch_dtype"] = their_dtype(dtype);
    return j.dump(2) + "\n";
}

}  // namespace quadrille
