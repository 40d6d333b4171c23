#include "config/load.hpp"

#include "base/error.hpp"
#include "config/check.hpp"
#include "config/resolve.hpp"
#include "config/settings.hpp"
#include "config/yaml_reader.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>

namespace quadrille::input {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t largest_input = 16u << 20;  // bytes; more is a wrong file

// A file to its end, or a little more than largest_input of it. `failure`: why it ended before.
std::string read_some(std::FILE* file, int& failure) {
    std::string text;
    std::array<char, 1 << 16> block;
    for (std::size_t n = 1; text.size() <= largest_input && n > 0;) {
        n = std::fread(block.data(), 1, block.size(), file);
        if (std::ferror(file) != 0) failure = errno;
        text.append(block.data(), n);
    }
    return text;
}

// The input's text; nothing, with a problem added, where it cannot be read.
std::optional<std::string> read_input(const std::string& path, Problems& problems) {
    std::string text;
    int failure = 0;
    if (path == "-") {
        text = read_some(stdin, failure);
    } else {
        std::error_code error;
        if (fs::is_directory(path, error)) {
            problems.add({}, "", "found a folder, allowed: a YAML file");
            return std::nullopt;
        }
        const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"), &std::fclose);
        if (!file) {
            problems.add({}, "", fmt::format("the input file cannot be opened: {}", std::strerror(errno)));
            return std::nullopt;
        }
        text = read_some(file.get(), failure);
    }
    if (failure != 0) {
        problems.add({}, "", fmt::format("the input cannot be read to its end: {}", std::strerror(failure)));
        return std::nullopt;
    }
    if (text.size() > largest_input) {
        problems.add({}, "", fmt::format("found more than {} bytes, allowed: an input file", largest_input));
        return std::nullopt;
    }
    return text;
}

Origin origin_of(const std::string& path) {
    if (path == "-") return {fs::current_path(), "stdin"};
    const fs::path file = fs::absolute(path).lexically_normal();
    return {file.parent_path(), file.stem().string()};
}

// Of nothing, where the text could not be read.
Config load_from(const std::optional<std::string>& text, Problems& problems, const Origin& origin, const std::vector<std::string>& overrides,
                 const Job& job, std::vector<std::string>* warnings) {
    Settings settings;
    NodePtr document;
    if (text) document = read_yaml(*text, 0, problems);
    const bool readable = document != nullptr && document->kind == Node::Kind::map;
    if (document != nullptr) settings.collect(*document, problems);
    for (std::size_t i = 0; i < overrides.size(); ++i) settings.collect_override(overrides[i], static_cast<int>(i) + 1, problems);
    if (!readable) problems.throw_if_any();  // nothing follows from a file that says nothing
    std::vector<std::string> remarks;
    const Config config = resolve(settings, origin, job, problems, remarks);
    check(config, settings, problems);
    problems.throw_if_any();
    if (warnings != nullptr) warnings->insert(warnings->end(), remarks.begin(), remarks.end());
    return config;
}

}  // namespace

}  // namespace quadrille::input

namespace quadrille {

using namespace input;

std::vector<std::string> merged_overrides(const std::vector<std::string>& given, const std::vector<std::string>& more) {
    std::vector<std::string> out = more;
    const auto key = [](const std::string& override) { return override.substr(0, override.find('=')); };
    for (const std::string& g : given)
        if (std::none_of(more.begin(), more.end(), [&](const std::string& m) { return key(m) == key(g); })) out.push_back(g);
    return out;
}

Config load_config(const std::string& path, const std::vector<std::string>& overrides, const Job& job,
                   std::vector<std::string>* warnings) {
    Problems problems(path == "-" ? "<stdin>" : path, overrides);
    const std::optional<std::string> text = read_input(path, problems);
    return load_from(text, problems, origin_of(path), overrides, job, warnings);
}

Config load_config_text(const std::string& text, const std::string& name, const std::vector<std::string>& overrides, const Job& job,
                        std::vector<std::string>* warnings) {
    Problems problems(name, overrides);
    return load_from(text, problems, {fs::current_path(), fs::path(name).stem().string()}, overrides, job, warnings);
}

}  // namespace quadrille
