#include "config/convert.hpp"

#include "base/error.hpp"
#include "config/aliases.hpp"
#include "config/numbers.hpp"
#include "config/utf8.hpp"

#include <algorithm>

namespace quadrille::input {

namespace {

bool contains(const std::vector<std::string>& words, const std::string& word) {
    return std::find(words.begin(), words.end(), word) != words.end();
}

Converted fail(const Key& key, const Node& node, const std::string& why = "") {
    return {{}, fmt::format("{}{}{}, allowed: {}", found(node), why.empty() ? "" : ", ", why, allowed(key))};
}

Converted not_in_build(const Key& key, const Node& node) {
    const std::string only = key.fixed ? key.fallback : allowed(key);
    return {{}, fmt::format("{}, which is not in this build, allowed: {}", found(node), only)};
}

bool in_range(const Range& r, double x) {
    return (r.above_least ? x > r.least : x >= r.least) && (r.below_most ? x < r.most : x <= r.most);
}

template <class T>
Converted checked(const Key& key, const Node& node, const Parsed<T>& parsed) {
    if (!parsed.problem.empty()) return fail(key, node, parsed.problem);
    if (!in_range(key.range, static_cast<double>(parsed.value))) {
        Converted bad = fail(key, node);
        if (parsed.value == T(-1) && key.word == "auto") bad.problem += "; write auto for what is left over";
        return bad;
    }
    return {parsed.value, ""};
}

Converted boolean(const Key& key, const Node& node) {
    for (const char* word : {"true", "True", "TRUE"})
        if (node.text == word) return {true, ""};
    for (const char* word : {"false", "False", "FALSE"})
        if (node.text == word) return {false, ""};
    Converted bad = fail(key, node);
    for (const char* word : {"yes", "Yes", "YES", "on", "On", "ON", "y", "Y", "1"})
        if (node.text == word) bad.problem += "; did you mean true?";
    for (const char* word : {"no", "No", "NO", "off", "Off", "OFF", "n", "N", "0"})
        if (node.text == word) bad.problem += "; did you mean false?";
    return bad;
}

Converted choice(const Key& key, const Node& node) {
    if (contains(key.choices, node.text)) return {node.text, ""};
    const std::string hint = choice_hint(key, node.text);
    if (contains(key.later, node.text)) return not_in_build(key, node);
    const bool path_like = node.text.find('/') != std::string::npos || (hint.empty() && !node.is_null() && !node.text.empty());
    if (key.or_path && path_like) return {node.text, ""};
    Converted bad = fail(key, node);
    bad.problem += hint;
    return bad;
}

Converted order(const Key& key, const Node& node) {
    std::vector<std::string> axes(1);
    for (const char c : node.text) {
        if (c == '-')
            axes.emplace_back();
        else
            axes.back() += c;
    }
    std::vector<std::string> sorted = axes;
    std::sort(sorted.begin(), sorted.end());
    if (sorted != std::vector<std::string>{"dp", "pp", "sp", "tp"}) return fail(key, node);
    return {axes, ""};
}

// A list of scalars, each converted by `element`; for paths a single scalar is a list of one, and nothing a list of none.
template <class T, class Element>
Converted list(const Key& key, const Node& node, Element element) {
    std::vector<T> values;
    std::vector<const Node*> items;
    if (node.kind == Node::Kind::list)
        for (const NodePtr& item : node.items) items.push_back(item.get());
    else if (node.kind == Node::Kind::scalar && key.type == KeyType::paths && !node.is_null())
        items.push_back(&node);
    else if (!(node.is_null() && key.type == KeyType::paths))
        return fail(key, node);
    for (const Node* item : items) {
        if (item->kind != Node::Kind::scalar) return fail(key, *item);
        Converted one = element(*item);
        if (!one.problem.empty()) return one;
        values.push_back(std::get<T>(one.value));
    }
    return {values, ""};
}

// "969,30,1", or a list of the numbers.
Converted weights(const Key& key, const Node& node) {
    constexpr std::ptrdiff_t most_weights = 3;  // of training, validation and test
    Node as_list = node;
    if (node.kind == Node::Kind::scalar) {
        as_list.kind = Node::Kind::list;
        if (std::count(node.text.begin(), node.text.end(), ',') >= most_weights) return fail(key, node);
        std::string rest = node.text + ",";
        for (std::size_t comma; (comma = rest.find(',')) != std::string::npos; rest.erase(0, comma + 1)) {
            Node item = node;
            const std::size_t first = std::min(rest.find_first_not_of(' '), comma);
            item.text = rest.substr(first, comma - first);
            item.text.erase(item.text.find_last_not_of(' ') + 1);
            as_list.items.push_back(std::make_shared<Node>(item));
        }
    }
    Converted result = list<double>(key, as_list, [&](const Node& item) { return checked(key, item, parse_number(item.text)); });
    if (!result.problem.empty()) return result;
    const auto& parts = std::get<std::vector<double>>(result.value);
    if (parts.empty() || std::ssize(parts) > most_weights) return fail(key, node);
    if (parts[0] <= 0) return fail(key, node, "whose first weight leaves no training data");
    return result;
}

Converted text(const Key& key, const Node& node) {
    if (node.text.empty()) return fail(key, node);
    return {node.text, ""};
}

// Names and texts; a number or a word is the text that stands there.
Converted map(const Key& key, const Node& node) {
    if (node.kind != Node::Kind::map) return fail(key, node);
    std::map<std::string, std::string> values;
    for (const Entry& entry : node.entries) {
        if (entry.value->kind != Node::Kind::scalar || entry.value->is_null()) return fail(key, *entry.value, fmt::format("for '{}'", entry.key));
        if (!values.emplace(entry.key, entry.value->text).second) return fail(key, node, fmt::format("in which '{}' stands twice", entry.key));
    }
    return {values, ""};
}

Converted by_type(const Key& key, const Node& node) {
    switch (key.type) {
        case KeyType::paths: return list<std::string>(key, node, [&](const Node& item) { return text(key, item); });
        case KeyType::integers:
            return list<std::int64_t>(key, node, [&](const Node& item) { return checked(key, item, parse_integer(item.text)); });
        case KeyType::weights: return node.kind == Node::Kind::map ? fail(key, node) : weights(key, node);
        case KeyType::map: return map(key, node);
        default: break;
    }
    if (node.kind != Node::Kind::scalar) return fail(key, node);
    switch (key.type) {
        case KeyType::boolean: return boolean(key, node);
        case KeyType::integer: return checked(key, node, parse_integer(node.text));
        case KeyType::bytes: return checked(key, node, parse_bytes(node.text));
        case KeyType::number: return checked(key, node, parse_number(node.text));
        case KeyType::choice: return choice(key, node);
        case KeyType::order: return order(key, node);
        default: return text(key, node);
    }
}

// The default of a key as a value.
Value fallback_value(const Key& key) {
    Problems problems(key.path(), {key.fallback});
    const NodePtr node = read_yaml(key.fallback, 1, problems);
    require(node != nullptr, "the table of keys has a default that is not YAML: " + key.path());
    Key free = key;
    free.fixed = false;
    return convert(free, *node).value;
}

}  // namespace

std::string found(const Node& node) {
    switch (node.kind) {
        case Node::Kind::list: return fmt::format("found a list of {}", node.items.size());
        case Node::Kind::map: return "found a mapping";
        case Node::Kind::scalar: break;
    }
    if (node.text.empty()) return node.quoted ? "found an empty text" : "found nothing";
    constexpr std::size_t most = 80;
    const std::string size = node.text.size() > most ? fmt::format(" of {} bytes", node.text.size()) : "";
    return fmt::format("found '{}'{}", shortened(node.text, most), size);
}

Converted convert(const Key& key, const Node& node) {
    const bool is_word =
        (key.word == "auto" && node.kind == Node::Kind::scalar && node.text == "auto") || (key.word == "null" && node.is_null());
    if (is_word) return {};
    const bool later = node.kind == Node::Kind::scalar && key.type != KeyType::choice && contains(key.later, node.text);
    if (later) return not_in_build(key, node);
    Converted result = by_type(key, node);
    if (!result.problem.empty() || !key.fixed) return result;
    return result.value == fallback_value(key) ? result : not_in_build(key, node);
}

}  // namespace quadrille::input
