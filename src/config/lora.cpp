#include "config/lora.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

namespace quadrille {

std::vector<LinearMatrix> linear_matrices(const ModelConfig& m, std::int64_t layer) {
    const std::int64_t h = m.hidden_size, f = m.ffn_hidden_size, q = m.num_attention_heads * m.head_dim, kv = m.num_key_value_heads * m.head_dim;
    const std::string attention = fmt::format("layers.{}.attention.", layer), mlp = fmt::format("layers.{}.mlp.", layer);
    std::vector<LinearMatrix> out = {{attention + "q", q, h}, {attention + "k", kv, h}, {attention + "v", kv, h}, {attention + "o", h, q}};
    if (m.activation == Activation::swiglu) out.push_back({mlp + "gate", f, h});
    out.push_back({mlp + "up", f, h});
    out.push_back({mlp + "down", h, f});
    return out;
}

bool names_matrix(std::string_view target, std::string_view matrix) {
    const auto is_edge = [&](std::size_t at) { return at == matrix.size() || matrix[at] == '.'; };
    for (std::size_t at = matrix.find(target); at != std::string_view::npos; at = matrix.find(target, at + 1))
        if ((at == 0 || is_edge(at - 1)) && is_edge(at + target.size())) return true;
    return target == "all";
}

std::vector<std::int64_t> layers_told_apart(std::string_view target, std::int64_t num_layers) {
    std::vector<std::int64_t> layers = {0};
    for (std::size_t begin = 0; begin < target.size();) {
        const std::size_t end = std::min(target.find('.', begin), target.size());
        std::int64_t layer = -1;
        std::from_chars(target.data() + begin, target.data() + end, layer);
        if (layer > 0 && layer < num_layers) layers.push_back(layer);
        begin = end + 1;
    }
    return layers;
}

bool is_target(const LoraConfig& lora, std::string_view matrix) {
    return lora.on() && std::any_of(lora.targets.begin(), lora.targets.end(), [&](const std::string& t) { return names_matrix(t, matrix); });
}

}  // namespace quadrille
