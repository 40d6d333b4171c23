#include "config/compression.hpp"

#include "config/lora.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace quadrille {

namespace {

void add_units(const Config& c, std::int64_t layer, std::vector<std::string>& names) {
    names.push_back(fmt::format("layers.{}", layer));
    if (c.lora.on()) names.push_back(names.back() + ".lora");
}

}  // namespace

std::vector<std::string> unit_names(const Config& c) {
    std::vector<std::string> names = {"embedding", "head"};
    for (std::int64_t layer = 0; layer < c.model.num_layers; ++layer) add_units(c, layer, names);
    return names;
}

bool names_unit(const Config& c, std::string_view part) {
    std::vector<std::string> names = {"embedding", "head"};
    for (const std::int64_t layer : layers_told_apart(part, c.model.num_layers)) add_units(c, layer, names);
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return names_matrix(part, name); });
}

bool sent_whole(const CompressionConfig& c, std::string_view unit) {
    const auto named = [&](std::string_view name) {
        return std::any_of(c.exclude.begin(), c.exclude.end(), [&](const std::string& part) { return names_matrix(part, name); });
    };
    return unit == "tied" ? named("embedding") || named("head") : named(unit);
}

}  // namespace quadrille
