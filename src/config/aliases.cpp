#include "config/aliases.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace quadrille::input {

namespace {

// Command-line spelling (--tensor-model-parallel-size) and file spelling are one.
std::string plain_name(std::string_view name) {
    name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
    std::string result;
    for (const char c : name) result += c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return result;
}

// Optimal string alignment distance, O(|a|·|b|); names longer than any of ours are not compared.
std::size_t edit_distance(std::string_view a, std::string_view b) {
    constexpr std::size_t longest = 64;
    if (a.size() > longest || b.size() > longest) return longest;
    std::array<std::array<std::size_t, longest + 1>, 3> rows{};  // of prefixes i−2, i−1 and i of a
    for (std::size_t j = 0; j <= b.size(); ++j) rows[1][j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        rows[2][0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            rows[2][j] = std::min({rows[1][j] + 1, rows[2][j - 1] + 1, rows[1][j - 1] + (a[i - 1] != b[j - 1])});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                rows[2][j] = std::min(rows[2][j], rows[0][j - 2] + 1);
        }
        rows[0] = rows[1];
        rows[1] = rows[2];
    }
    return rows[1][b.size()];
}

// "" or the part of `path` behind its last `count` dots.
std::string_view last_names(std::string_view path, int count) {
    std::size_t at = path.size();
    for (int i = 0; i < count; ++i) {
        if (at == 0) return {};
        at = path.rfind('.', at - 1);
        if (at == std::string_view::npos) return {};
    }
    return path.substr(at + 1);
}

// Our keys of that last name, in any section.
std::vector<std::string> keys_named(std::string_view name) {
    std::vector<std::string> found;
    for (const Key& key : keys())
        if (key.name == name || key.name.ends_with(fmt::format(".{}", name))) found.push_back(key.path());
    return found;
}

std::string either(const std::vector<std::string>& names) {
    std::string text = names[0];
    for (std::size_t i = 1; i < names.size(); ++i) text += " or " + names[i];
    return text;
}

}  // namespace

const Alias* find_alias(std::string_view path) {
    const std::string name = plain_name(path);
    std::string_view pair = last_names(name, 2), last = last_names(name, 1);
    for (const std::string_view candidate : {std::string_view(name), pair, last})
        for (const Alias& alias : aliases())
            if (!candidate.empty() && alias.foreign == candidate) return &alias;
    return nullptr;
}

std::optional<std::string> nearest(std::string_view name, const std::vector<std::string>& candidates) {
    const std::string written = plain_name(name);
    std::optional<std::string> best;
    std::size_t least = std::max<std::size_t>(1, written.size() / 3) + 1;
    for (const std::string& candidate : candidates) {
        const std::size_t distance = edit_distance(written, plain_name(candidate));
        if (distance < least && distance < candidate.size()) {
            least = distance;
            best = candidate;
        }
    }
    return best;
}

std::string key_hint(std::string_view path) {
    const std::string name = plain_name(path);
    const std::size_t dot = name.rfind('.');
    const std::string last = name.substr(dot == std::string::npos ? 0 : dot + 1);
    const std::string section = name.substr(0, name.find('.'));
    std::vector<std::string> siblings;
    for (const Key& key : keys())
        if (key.section == section) siblings.push_back(key.name);
    if (find_key(name) != nullptr) return fmt::format("; did you mean {}?", name);
    if (const Alias* alias = find_alias(name); alias != nullptr) {
        if (alias->key.empty()) return fmt::format("; {}", alias->remark);
        return fmt::format("; did you mean {}?{}{}{}", alias->key, alias->remark.empty() ? "" : " (", alias->remark,
                           alias->remark.empty() ? "" : ")");
    }
    if (const auto own = keys_named(last); !own.empty()) return fmt::format("; it belongs elsewhere: {}", either(own));
    if (const auto near = nearest(last, siblings)) return fmt::format("; did you mean {}.{}?", section, *near);
    if (dot == std::string::npos)
        if (const auto near = nearest(last, sections())) return fmt::format("; did you mean {}?", *near);
    std::vector<std::string> names;
    for (const Key& key : keys()) names.push_back(key.name);
    if (const auto near = nearest(last, names)) return fmt::format("; did you mean {}?", either(keys_named(*near)));
    return "";
}

std::string target_hint(std::string_view target) {
    if (target.find(',') != std::string_view::npos) return fmt::format("; a list is written [{}]", target);
    const std::string name = plain_name(target);
    for (const auto& [foreign, ours] : target_aliases())
        if (foreign == name.substr(name.rfind('.') + 1)) return fmt::format("; did you mean {}?", ours);
    return "";
}

std::string choice_hint(const Key& key, std::string_view value) {
    std::vector<std::string> all = key.choices;
    all.insert(all.end(), key.later.begin(), key.later.end());
    const std::string name = plain_name(value);
    const auto is_one = [&](std::string_view word) { return std::find(all.begin(), all.end(), word) != all.end(); };
    for (const auto& [foreign, ours] : choice_aliases()) {
        if (foreign != name) continue;
        if (ours.empty()) return "";
        if (is_one(ours)) return fmt::format("; did you mean {}?", ours);
    }
    const auto near = nearest(name, all);
    return near ? fmt::format("; did you mean {}?", *near) : "";
}

}  // namespace quadrille::input
