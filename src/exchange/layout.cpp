#include "exchange/layout.hpp"

#include "base/error.hpp"
#include "model/model.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <set>
#include <span>

namespace quadrille {
namespace {

// '#' is the layer; .weight and .bias follow on both sides. A row whose parameters the model is without is none: a head that is the embedding,
// biases, a table of positions.
struct Row {
    const char* theirs;
    std::array<const char*, 3> ours;
    bool transposed = false;  // of matrices
};

constexpr std::array<Row, 10> gpt2_rows = {{
    {"transformer.wte", {"embedding"}},
    {"transformer.wpe", {"position_embedding"}},
    {"transformer.h.#.ln_1", {"layers.#.attention_norm"}},
    {"transformer.h.#.attn.c_attn", {"layers.#.attention.q", "layers.#.attention.k", "layers.#.attention.v"}, true},
    {"transformer.h.#.attn.c_proj", {"layers.#.attention.o"}, true},
    {"transformer.h.#.ln_2", {"layers.#.mlp_norm"}},
    {"transformer.h.#.mlp.c_fc", {"layers.#.mlp.up"}, true},
    {"transformer.h.#.mlp.c_proj", {"layers.#.mlp.down"}, true},
    {"transformer.ln_f", {"final_norm"}},
    {"lm_head", {"head"}},
}};

constexpr std::array<Row, 12> llama_rows = {{
    {"model.embed_tokens", {"embedding"}},
    {"model.layers.#.input_layernorm", {"layers.#.attention_norm"}},
    {"model.layers.#.self_attn.q_proj", {"layers.#.attention.q"}},
    {"model.layers.#.self_attn.k_proj", {"layers.#.attention.k"}},
    {"model.layers.#.self_attn.v_proj", {"layers.#.attention.v"}},
    {"model.layers.#.self_attn.o_proj", {"layers.#.attention.o"}},
    {"model.layers.#.post_attention_layernorm", {"layers.#.mlp_norm"}},
    {"model.layers.#.mlp.gate_proj", {"layers.#.mlp.gate"}},
    {"model.layers.#.mlp.up_proj", {"layers.#.mlp.up"}},
    {"model.layers.#.mlp.down_proj", {"layers.#.mlp.down"}},
    {"model.norm", {"final_norm"}},
    {"lm_head", {"head"}},
}};

std::span<const Row> rows_of(Family f) {
    if (f == Family::gpt2) return gpt2_rows;
    return llama_rows;
}

std::string_view prefix_of(Family f) { return f == Family::gpt2 ? "transformer." : "model."; }

bool of_layers(const Row& row) { return std::string_view(row.theirs).find('#') != std::string_view::npos; }

std::string in_layer(const char* name, std::int64_t layer, const char* kind) {
    std::string out = name;
    if (const std::size_t at = out.find('#'); at != std::string::npos) out.replace(at, 1, std::to_string(layer));
    return out + kind;
}

using Shapes = std::map<std::string, std::vector<std::int64_t>>;

// The parameters, as the model itself makes them on one rank.
Shapes shapes_of(const ModelConfig& m) {
    Config c;
    c.model = m;
    Shapes shapes;
    for (const Parameter& p : build_model(c, std::make_shared<Tables>(grid_of(c))).parameters) shapes[p.name] = p.shape;
    return shapes;
}

OurPart part_of(const std::string& name, const std::vector<std::int64_t>& shape) {
    OurPart p{name, shape};
    std::int64_t elements = 1;
    for (const std::int64_t n : shape) elements *= n;
    const bool matrix = shape.size() > 1 && name.ends_with(".weight"), output = name.ends_with("attention.o.weight");
    if (matrix) p.in = output ? shape[1] * shape[2] : shape.back();  // of the output projection heads and channels are the input
    p.out = elements / p.in;
    return p;
}

// Adds the row's tensor, unless the model is without it.
void add(const Row& row, std::int64_t layer, const char* kind, const Shapes& shapes, std::vector<TheirTensor>& out) {
    TheirTensor t;
    t.name = in_layer(row.theirs, layer, kind);
    for (const char* ours : row.ours) {
        if (!ours) break;
        const auto found = shapes.find(in_layer(ours, layer, kind));
        if (found == shapes.end()) return;
        const std::int64_t before = t.parts.empty() ? 0 : t.outs();
        t.parts.push_back(part_of(found->first, found->second));
        t.parts.back().before = before;
    }
    const bool matrix = t.parts[0].shape.size() > 1 && std::string_view(kind) == ".weight";
    t.transposed = row.transposed && matrix;
    t.shape = {t.outs()};
    if (matrix) t.shape.push_back(t.parts[0].in);
    if (t.transposed) std::swap(t.shape[0], t.shape[1]);
    out.push_back(std::move(t));
}

// What the family wants and the model has not, as `key value` of the input file.
std::vector<std::string> unmet(Family f, const ModelConfig& m) {
    std::vector<std::string> wants;
    const auto want = [&](bool ok, const char* what) {
        if (!ok) wants.emplace_back(what);
    };
    if (f == Family::gpt2) {
        want(m.normalization == Normalization::layernorm, "normalization layernorm");
        want(m.activation == Activation::gelu, "activation gelu");
        want(m.position_embedding == PositionEmbedding::learned, "position_embedding learned");
        want(m.bias, "bias true");
        want(m.num_key_value_heads == m.num_attention_heads, "num_key_value_heads as num_attention_heads");
        want(m.head_dim * m.num_attention_heads == m.hidden_size, "head_dim auto");
        return wants;
    }
    want(m.normalization == Normalization::rmsnorm, "normalization rmsnorm");
    want(m.activation == Activation::swiglu, "activation swiglu");
    want(m.position_embedding == PositionEmbedding::rope, "position_embedding rope");
    return wants;
}

}  // namespace

std::string_view name_of(Family f) { return f == Family::gpt2 ? "gpt2" : "llama"; }

Family family_of(const ModelConfig& m) {
    std::vector<std::string> why;
    for (const Family f : {Family::gpt2, Family::llama}) {
        const std::vector<std::string> wants = unmet(f, m);
        if (wants.empty()) return f;
        why.push_back(fmt::format("{} wants {}", name_of(f), fmt::join(wants, ", ")));
    }
    throw Error(Exit::refused, fmt::format("no family of models holds this one: {}", fmt::join(why, "; ")));
}

std::vector<TheirTensor> layout_of(Family family, const ModelConfig& m) {
    const Shapes shapes = shapes_of(m);
    std::vector<TheirTensor> out;
    const std::span<const Row> rows = rows_of(family);
    const auto add_both = [&](const Row& row, std::int64_t layer) {
        for (const char* kind : {".weight", ".bias"}) add(row, layer, kind, shapes, out);
    };
    std::size_t r = 0;
    for (; !of_layers(rows[r]); ++r) add_both(rows[r], 0);
    std::size_t end = r;
    while (of_layers(rows[end])) ++end;
    for (std::int64_t layer = 0; layer < m.num_layers; ++layer)
        for (std::size_t k = r; k < end; ++k) add_both(rows[k], layer);
    for (; end < rows.size(); ++end) add_both(rows[end], 0);
    std::set<std::string> held;
    for (const TheirTensor& t : out)
        for (const OurPart& p : t.parts) held.insert(p.name);
    for (const auto& [name, shape] : shapes) require(held.contains(name), fmt::format("exchange: {} has no place for {}", name_of(family), name));
    return out;
}

std::string_view bare_name(Family f, std::string_view name) {
    return name.starts_with(prefix_of(f)) ? name.substr(prefix_of(f).size()) : name;
}

bool may_be_left(Family f, const ModelConfig& m, std::string_view name) {
    if (name == "lm_head.weight") return m.tie_word_embeddings;
    if (f == Family::llama) return name.ends_with(".rotary_emb.inv_freq");
    return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");  // the causal mask, and what is masked
}

void place_rows(const TheirTensor& t, const OurPart& p, std::int64_t first_row, const std::vector<float>& rows, std::vector<float>& tensor) {
    const std::int64_t count = std::ssize(rows) / p.in, outs = t.outs();
    if (!t.transposed) {
        std::copy(rows.begin(), rows.end(), tensor.begin() + (p.before + first_row) * p.in);
        return;
    }
    for (std::int64_t r = 0; r < count; ++r)
        for (std::int64_t c = 0; c < p.in; ++c)
            tensor[static_cast<std::size_t>(c * outs + p.before + first_row + r)] = rows[static_cast<std::size_t>(r * p.in + c)];
}

void take_columns(const TheirTensor& t, const OurPart& p, std::int64_t first, const std::vector<float>& rows, std::vector<float>& part) {
    const std::int64_t outs = t.outs(), count = std::ssize(rows) / outs;
    for (std::int64_t c = 0; c < count; ++c)
        for (std::int64_t r = 0; r < p.out; ++r)
            part[static_cast<std::size_t>(r * p.in + first + c)] = rows[static_cast<std::size_t>(c * outs + p.before + r)];
}

}  // namespace quadrille
