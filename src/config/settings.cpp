#include "config/settings.hpp"

#include "base/error.hpp"
#include "config/aliases.hpp"
#include "config/convert.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace quadrille::input {

namespace {

// Whether `path` is a section or a mapping inside of one, such as comm.compression.
bool is_group(const std::string& path) {
    const std::string prefix = path + ".";
    return std::any_of(keys().begin(), keys().end(), [&](const Key& key) { return key.path().starts_with(prefix); });
}

// The names that may stand under `group` ("" for the file).
std::string names_under(const std::string& group) {
    std::vector<std::string> names;
    if (group.empty()) return fmt::format("{}", fmt::join(sections(), ", "));
    for (const Key& key : keys()) {
        if (!key.path().starts_with(group + ".")) continue;
        std::string name = key.path().substr(group.size() + 1);
        name = name.substr(0, name.find('.'));
        if (names.empty() || names.back() != name) names.push_back(name);
    }
    return fmt::format("{}", fmt::join(names, ", "));
}

// What to say to someone who gave a section a value: the first of its keys that takes it, as an override, or all of them.
std::string section_hint(const std::string& section, const std::string& value) {
    Problems unread("", {});
    const NodePtr node = value.empty() ? nullptr : read_yaml(value, 1, unread);
    for (const Key& key : keys())
        if (node != nullptr && key.section == section && key.name.find('.') == std::string::npos && convert(key, *node).problem.empty())
            return fmt::format("; {} is a section: {}={}", section, key.path(), value);
    return fmt::format("; {} is a section of {}", section, names_under(section));
}

std::string joined(const std::string& prefix, const std::string& name) { return prefix.empty() ? name : prefix + "." + name; }

}  // namespace

void Settings::collect(const Node& document, Problems& problems) {
    if (document.kind != Node::Kind::map) {
        const bool nothing = document.is_null() && document.text.empty();
        problems.add(document.place, "",
                     nothing ? "the file is empty, allowed: a mapping of sections"
                             : fmt::format("{} at the top, allowed: a mapping of sections", found(document)));
        return;
    }
    collect_map(document, "", problems);
}

void Settings::collect_override(const std::string& text, int number, Problems& problems) {
    const Place place{number, 0, 0};
    const std::size_t equals = text.find('=');
    const std::string path = text.substr(0, equals);
    if (equals == std::string::npos || path.find('.') == std::string::npos || path.front() == '.' || path.back() == '.' ||
        path.front() == '-') {
        const std::string value = equals == std::string::npos ? "" : text.substr(equals + 1);
        const std::string hint = is_group(path) ? section_hint(path, value) : key_hint(path);
        problems.add(place, "", fmt::format("an override is written section.key=value{}", hint));
        return;
    }
    constexpr std::ptrdiff_t most_names = 16;  // each is a mapping around the next
    if (const auto dots = std::count(path.begin(), path.end(), '.'); dots >= most_names)
        return problems.add(place, path, fmt::format("found a key of {} names, allowed: up to {}", dots + 1, most_names));
    const NodePtr value = read_yaml(text.substr(equals + 1), number, problems);
    if (value == nullptr) return;
    // The mapping that a file would hold: {section: {key: value}}.
    NodePtr node = value;
    for (std::size_t end = path.size();;) {
        const std::size_t dot = path.rfind('.', end - 1);
        const std::size_t begin = dot == std::string::npos ? 0 : dot + 1;
        Node around;
        around.kind = Node::Kind::map;
        around.place = place;
        around.entries.push_back({path.substr(begin, end - begin), place, node});
        node = std::make_shared<Node>(around);
        if (dot == std::string::npos || dot == 0) break;
        end = dot;
    }
    collect_map(*node, "", problems);
}

void Settings::collect_map(const Node& map, const std::string& prefix, Problems& problems) {
    std::map<std::string, Place> seen;
    for (const Entry& entry : map.entries) {
        const std::string path = joined(prefix, entry.key);
        const auto [first, is_first] = seen.emplace(entry.key, entry.place);
        if (is_first)
            collect_entry(entry, path, problems);
        else
            problems.add(entry.place, path,
                         fmt::format("found the key twice, allowed: once; the first is at {}", problems.describe(first->second)));
    }
}

void Settings::collect_entry(const Entry& entry, const std::string& path, Problems& problems) {
    const bool one_name = entry.key.find('.') == std::string::npos;
    if (const Key* key = find_key(path); key != nullptr && one_name)
        return collect_value(*key, *entry.value, entry.place, problems);
    if (!one_name || !is_group(path)) return collect_unknown(entry, path, 0, problems);
    if (entry.value->kind == Node::Kind::map) return collect_map(*entry.value, path, problems);
    if (entry.value->is_null()) return forget(path);
    problems.add(entry.value->place, path, fmt::format("{}, allowed: a mapping of {}", found(*entry.value), names_under(path)));
}

// A section whose keys are all commented out; or an override that takes the place of what the file says of a group: nothing.
void Settings::forget(const std::string& group) {
    const auto inside = [&](const auto& entry) { return entry.first.starts_with(group + "."); };
    std::erase_if(values_, inside);
    std::erase_if(places_, inside);
    std::erase_if(broken_, [&](const std::string& path) { return path.starts_with(group + "."); });
}

void Settings::collect_value(const Key& key, const Node& node, Place written, Problems& problems) {
    const std::string path = key.path();
    const auto before = places_.find(path);
    if (written.source > 0 && before != places_.end() && before->second.source > 0) {
        problems.add(written, path,
                     fmt::format("found the key twice, allowed: once; the first is {}", problems.describe(before->second)));
        return;
    }
    values_.erase(path);
    broken_.erase(path);
    // An aliased value stands elsewhere; the key is where the reader looks.
    const bool near = node.place.source == written.source && node.place.line >= written.line;
    places_[path] = near ? node.place : written;
    const Converted result = convert(key, node);
    if (!result.problem.empty()) {
        broken_.insert(path);
        problems.add(places_[path], path, result.problem);
    } else if (!std::holds_alternative<std::monostate>(result.value)) {
        values_[path] = result.value;
    }
}

void Settings::collect_unknown(const Entry& entry, const std::string& path, int depth, Problems& problems) const {
    if (problems.full()) return problems.add(entry.place, path, "");
    const bool is_map = entry.value->kind == Node::Kind::map;
    const std::string parent = path.size() > entry.key.size() ? path.substr(0, path.size() - entry.key.size() - 1) : "";
    const char* what = parent.empty() && is_map ? "found an unknown section" : "found an unknown key";
    std::string sentence = what + key_hint(path);  // before the names, which are many
    if (parent.empty() || is_group(parent))
        sentence += fmt::format("{}llowed{}{}: {}", sentence == what ? ", a" : sentence.ends_with('?') ? " A" : ". A", parent.empty() ? "" : " in ",
                                parent, names_under(parent));
    problems.add(entry.place, path, sentence);
    constexpr int deepest = 3;  // deeper than any configuration we know of; keeps a bomb of aliases small
    if (!is_map || depth >= deepest) return;
    for (const Entry& inner : entry.value->entries) {
        const std::string inner_path = joined(path, inner.key);
        if (!key_hint(inner_path).empty()) collect_unknown(inner, inner_path, depth + 1, problems);
    }
}

bool Settings::given(std::string_view path) const {
    require(find_key(path) != nullptr, "no such key: " + std::string(path));
    return values_.find(path) != values_.end();
}

bool Settings::broken(std::string_view path) const { return broken_.find(path) != broken_.end(); }

Place Settings::place(std::string_view path) const {
    const auto found = places_.find(path);
    return found == places_.end() ? Place{} : found->second;
}

void Settings::apply(Config& config) const {
    for (const Key& key : keys()) {
        const std::string path = key.path();
        const auto found = values_.find(path);
        if (found != values_.end() && key.binding.set) key.binding.set(config, found->second);
        if (found == values_.end() && written(path) && !broken(path) && key.binding.leave_open) key.binding.leave_open(config);
    }
}

}  // namespace quadrille::input
