#include "config/lora.hpp"

#include <fmt/core.h>

#include <algorithm>

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
    const std::string within = fmt::format(".{}.", matrix);
    return target == "all" || within.find(fmt::format(".{}.", target)) != std::string::npos;
}

bool is_target(const LoraConfig& lora, std::string_view matrix) {
    return lora.on() && std::any_of(lora.targets.begin(), lora.targets.end(), [&](const std::string& t) { return names_matrix(t, matrix); });
}

}  // namespace quadrille
