#include "config/keys.hpp"

#include "config/numbers.hpp"

#include <fmt/format.h>

#include <cmath>

namespace quadrille::input {

namespace {

std::string join(const std::vector<std::string>& words, const char* between) {
    return fmt::format("{}", fmt::join(words, between));
}

// A bound in the key's own spelling, short where it can be: 1e12, 1024TiB.
std::string bound_text(const Key& key, double bound) {
    if (key.type == KeyType::bytes) return bytes_text(static_cast<std::int64_t>(bound));
    const std::string plain = bound < 1e15 && bound == std::floor(bound) ? fmt::format("{:.0f}", bound) : number_text(bound);
    std::string shortest = fmt::format("{:g}", bound);
    if (const std::size_t plus = shortest.find('+'); plus != std::string::npos) shortest.erase(plus, 1);
    return parse_number(shortest).value == bound && shortest.size() < plain.size() ? shortest : plain;
}

// " 1 to 8", " above 0, at most 1", or nothing for keys without a range.
std::string range_text(const Key& key) {
    const Range& r = key.range;
    if (r.most == std::numeric_limits<double>::infinity()) return "";
    const std::string least = bound_text(key, r.least), most = bound_text(key, r.most);
    if (!r.above_least && !r.below_most) return fmt::format(" {} to {}", least, most);
    return fmt::format(" {} {}, {} {}", r.above_least ? "above" : "at least", least, r.below_most ? "below" : "at most", most);
}

}  // namespace

const Key* find_key(std::string_view path) {
    for (const Key& key : keys())
        if (path.size() == key.section.size() + 1 + key.name.size() && path.starts_with(key.section) &&
            path[key.section.size()] == '.' && path.ends_with(key.name))
            return &key;
    return nullptr;
}

std::vector<std::string> sections() {
    std::vector<std::string> names;
    for (const Key& key : keys())
        if (names.empty() || names.back() != key.section) names.push_back(key.section);
    return names;
}

std::string allowed(const Key& key) {
    const std::string range = range_text(key);
    const std::string word = key.word.empty() ? "" : ", or " + key.word;
    switch (key.type) {
        case KeyType::boolean: return "true | false" + word;
        case KeyType::integer: return "an integer" + range + word;
        case KeyType::bytes: return "a number of bytes (KiB, MiB, GiB)" + range + word;
        case KeyType::number: return "a number" + range + word;
        case KeyType::choice: return join(key.choices, " | ") + (key.or_path ? " | a path" : "");
        case KeyType::text: return "text" + word;
        case KeyType::paths: return "a list of texts" + word;
        case KeyType::integers: return "a list of integers" + range + word;
        case KeyType::weights: return "one to three weights, such as \"969,30,1\"" + word;
        case KeyType::order: return "the axes tp, sp, dp and pp in some order, joined by dashes" + word;
        case KeyType::map: return "a mapping of names to texts" + word;
    }
    return "";
}

}  // namespace quadrille::input
