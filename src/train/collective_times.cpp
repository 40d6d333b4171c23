#include "train/collective_times.hpp"

#include "comm/agree.hpp"
#include "train/machine.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace quadrille {
namespace {

// Where the table is looked for if the environment names none; empty: nowhere.
std::filesystem::path usual_place() {
    const char* cache = std::getenv("XDG_CACHE_HOME");
    const char* home = std::getenv("HOME");
    if (cache != nullptr && *cache != '\0') return std::filesystem::path(cache) / "quadrille/collectives.json";
    if (home != nullptr && *home != '\0') return std::filesystem::path(home) / ".cache/quadrille/collectives.json";
    return {};
}

// What rank 0 has to say to all: three parts, each behind its length.
std::string packed(const std::string& note, const std::string& warning, const std::string& text) {
    return fmt::format("{} {} {}{}{}", note.size(), warning.size(), note, warning, text);
}

std::string read_named(const std::filesystem::path& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    if (!file || text.str().empty()) throw Error(Exit::refused, fmt::format("the measured collectives, {}, cannot be read", path.string()));
    return text.str();
}

// Rank 0's part. A text that it returns is one that can be parsed: a complaint is one and not one per rank.
std::string read_file() {
    const char* named = std::getenv("QUADRILLE_COLLECTIVES");
    const std::filesystem::path path = named != nullptr ? std::filesystem::path(named) : usual_place();
    std::error_code unknown;
    if (path.empty() || (named == nullptr && !std::filesystem::exists(path, unknown))) return packed("", "", "");
    try {
        const std::string text = read_named(path);
        parse_collective_times(text, path.string(), named != nullptr ? "" : machine_name());
        return packed(fmt::format("comm.algorithm: auto by the times in {}", path.string()), "", text);
    } catch (const Error& e) {
        if (named != nullptr) throw;
        return packed("", fmt::format("{}; comm.algorithm: auto goes by its built-in rule", e.what()), "");
    }
}

}  // namespace

CollectiveTimes measured_collective_times(const World& world) {
    const std::string found = on_first_rank(world, read_file);
    std::istringstream in(found);
    std::size_t note = 0, warning = 0;
    in >> note >> warning;
    const std::string rest = found.substr(static_cast<std::size_t>(in.tellg()) + 1);
    CollectiveTimes measured;
    measured.note = rest.substr(0, note);
    measured.warning = rest.substr(note, warning);
    if (!measured.note.empty()) measured.times = parse_collective_times(rest.substr(note + warning), "", "");
    return measured;
}

}  // namespace quadrille
