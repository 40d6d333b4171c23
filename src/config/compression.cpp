#include "config/compression.hpp"

#include "config/lora.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace quadrille {

std::vector<std::string> unit_names(const Config& c) {
    std::vector<std::string> names = {"embedding", "head"};
    for (std::int64_t layer = 0; layer < c.model.num_layers; ++layer) {
        names.push_back(fmt::format("layers.{}", layer));
        if (c.lora.on()) names.push_back(names.back() + ".lora");
    }
    return names;
}

bool sent_whole(const CompressionConfig& c, std::string_view unit) {
    const auto named = [&](std::string_view name) {
        return std::any_of(c.exclude.begin(), c.exclude.end(), [&](const std::string& part) { return names_matrix(part, name); });
    };
    return unit == "tied" ? named("embedding") || named("head") : named(unit);
}

}  // namespace quadrille
