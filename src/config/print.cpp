// The table of keys as text: the resolved input and the reference.
#include "config/load.hpp"

#include "base/error.hpp"
#include "config/keys.hpp"
#include "config/numbers.hpp"
#include "config/paths.hpp"
#include "config/settings.hpp"
#include "config/yaml_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace quadrille::input {

namespace {

// In double quotes, so that no text is taken for something else.
std::string quoted(const std::string& text) {
    std::string result = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') result += '\\';
        if (c == '\n')
            result += "\\n";
        else if (c == '\t')
            result += "\\t";
        else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)
            result += fmt::format("\\x{:02X}", static_cast<unsigned char>(c));
        else
            result += c;
    }
    return result + '"';
}

// Writes keys as nested mappings, opening sections and groups as they come.
class Sections {
  public:
    // The indent of a key of that path, after the headings it needs.
    std::string enter(const Key& key) {
        const std::string path = key.path();
        const std::string group = path.substr(0, path.rfind('.'));
        std::string indent;
        for (std::size_t begin = 0; begin <= group.size();) {
            const std::size_t end = std::min(group.find('.', begin), group.size());
            if (!inside(group.substr(0, end))) text += indent + group.substr(begin, end - begin) + ":\n";
            indent += "  ";
            begin = end + 1;
        }
        group_ = group;
        return indent;
    }
    std::string text;

  private:
    bool inside(const std::string& group) const { return group_ == group || group_.starts_with(group + "."); }
    std::string group_;
};

std::string name_in_group(const Key& key) {
    return key.name.substr(key.name.find('.') == std::string::npos ? 0 : key.name.rfind('.') + 1);
}

// Words of `text` in lines of at most `width` characters, each begun with `lead`.
std::string wrapped(const std::string& text, const std::string& lead, std::size_t width) {
    std::string result, line = lead;
    std::size_t begin = 0;
    while (begin < text.size()) {
        const std::size_t end = std::min(text.find(' ', begin), text.size());
        if (line.size() > lead.size() && line.size() + 1 + end - begin > width) {
            result += line + "\n";
            line = lead;
        }
        line += (line.size() > lead.size() ? " " : "") + text.substr(begin, end - begin);
        begin = end + 1;
    }
    return result + line + "\n";
}

std::string remark(const Key& key) { return fmt::format("{} ({})", key.comment, allowed(key)); }

}  // namespace

std::string value_text(const Key& key, const Value& value, const std::string& indent) {
    if (std::holds_alternative<std::monostate>(value)) return key.word;
    switch (key.type) {
        case KeyType::boolean: return std::get<bool>(value) ? "true" : "false";
        case KeyType::integer: return fmt::format("{}", std::get<std::int64_t>(value));
        case KeyType::bytes: return bytes_text(std::get<std::int64_t>(value));
        case KeyType::number: return number_text(std::get<double>(value));
        case KeyType::choice: {
            const std::string& text = std::get<std::string>(value);
            return std::find(key.choices.begin(), key.choices.end(), text) == key.choices.end() ? quoted(text) : text;
        }
        case KeyType::text: return quoted(std::get<std::string>(value));
        case KeyType::order: return fmt::format("{}", fmt::join(std::get<std::vector<std::string>>(value), "-"));
        case KeyType::integers: return fmt::format("[{}]", fmt::join(std::get<std::vector<std::int64_t>>(value), ", "));
        case KeyType::weights: return quoted(fmt::format("{}", fmt::join(std::get<std::vector<double>>(value), ",")));
        case KeyType::paths: {
            std::string text;
            for (const std::string& path : std::get<std::vector<std::string>>(value)) text += "\n" + indent + "  - " + quoted(path);
            return text.empty() ? "[]" : text;
        }
        case KeyType::map: {
            std::string text;
            for (const auto& [name, entry] : std::get<std::map<std::string, std::string>>(value))
                text += "\n" + indent + "  " + quoted(name) + ": " + quoted(entry);
            return text.empty() ? "{}" : text;
        }
    }
    return "";
}

}  // namespace quadrille::input

namespace quadrille {

using namespace input;

std::string to_yaml(const Config& config) {
    Sections out;
    for (const Key& key : keys()) {
        const std::string indent = out.enter(key);
        const std::string text = key.binding.get ? value_text(key, key.binding.get(config), indent) : key.fallback;
        out.text += fmt::format("{}{}:{}{}{}\n", indent, name_in_group(key), text.starts_with('\n') ? "" : " ", text,
                                key.live() ? "" : "  # the only value in this build");
    }
    return out.text;
}

std::string in_short(const Config& config) {
    std::map<std::string, std::string> lines;
    for (const Key& key : keys()) {
        if (!key.live()) continue;
        const Value value = key.binding.get(config);
        const auto* paths = key.type == KeyType::paths ? std::get_if<std::vector<std::string>>(&value) : nullptr;
        const bool files = paths != nullptr && key.section == "data";
        std::string text = files ? files_text(*paths) : paths ? fmt::format("[{}]", fmt::join(*paths, ", ")) : value_text(key, value, "");
        std::string& line = lines[key.section];
        line += fmt::format("{}{}: {}", line.empty() ? "" : ", ", key.name, text);
    }
    std::string all;
    for (const std::string& section : sections()) {
        const std::string head = fmt::format("  {:<12}", section + ":");
        std::string text = wrapped(lines[section], std::string(head.size(), ' '), 140);
        if (!lines[section].empty()) all += head + text.substr(head.size());
    }
    return all;
}

std::string model_section(const Config& config) {
    const std::string all = to_yaml(config);
    std::size_t begin = all.find("model:\n"), end = begin;
    require(begin != std::string::npos, "input: the input has no section model");
    do end = all.find('\n', end) + 1;
    while (end < all.size() && all[end] == ' ');
    return all.substr(begin, end - begin);
}

namespace {

// What the text says, and of all else the defaults.
Config parse_said(const std::string& text) {
    Problems problems("resolved input", {});
    Settings settings;
    if (const NodePtr document = read_yaml(text, 0, problems)) settings.collect(*document, problems);
    problems.throw_if_any();
    Config config;
    settings.apply(config);
    return config;
}

[[noreturn]] void refuse_text() {
    throw Error(Exit::refused, "resolved input: the text is not one that to_yaml made, in this version of the program");
}

}  // namespace

Config parse_resolved(const std::string& text) {
    Config config = parse_said(text);
    if (to_yaml(config) != text) refuse_text();
    return config;
}

Config parse_resolved_model(const std::string& text) {
    Config config = parse_said(text);
    if (to_yaml(config) != text && model_section(config) != text) refuse_text();
    return config;
}

std::string reference_yaml() {
    Sections out;
    out.text =
        "# Every key of the input file with its default, what it means and (in parentheses) what it takes.\n"
        "# Made from the table of keys in src/config/key_table.cpp; the test config_print compares the two.\n"
        "#\n"
        "# `auto` is derived; `plan --resolved` prints what was derived. Integers may be written 5e8, bytes with KiB, MiB, GiB\n"
        "# or TiB. Booleans are true and false; yes, no, on and off are refused there and are plain text elsewhere. Quotes make\n"
        "# no difference to numbers. Anchors and aliases work, merge keys (<<) are refused. On the command line a key is\n"
        "# written section.key=value and obeys the same rules.\n";
    std::string later = "\n# Not in this build. These keys are known, and take the value shown only:\n";
    std::string values = "# These values are known, and refused:\n";
    std::string section;
    for (const Key& key : keys()) {
        if (!key.later.empty() && key.live()) values += fmt::format("#   {}: {}\n", key.path(), fmt::join(key.later, " | "));
        if (!key.live()) {
            later += wrapped(fmt::format("{}: {}  ({})", key.path(), key.fallback, key.comment), "#   ", 140);
            continue;
        }
        if (key.section != section) out.text += "\n";
        section = key.section;
        const std::string indent = out.enter(key);
        const std::string line = fmt::format("{}{}: {}", indent, name_in_group(key), key.fallback);
        const std::string whole = fmt::format("{:<36}# {}", line, remark(key));
        constexpr std::size_t widest = 140;
        out.text += whole.size() <= widest ? whole + "\n" : wrapped(remark(key), indent + "# ", widest - 20) + line + "\n";
    }
    return out.text + later + values;
}

}  // namespace quadrille
