#include "train/collective_times.hpp"

#include "comm/agree.hpp"
#include "config/yaml_reader.hpp"
#include "train/machine.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace quadrille {
namespace {

const input::Node* find(const input::Node& row, std::string_view key) {
    for (const input::Entry& e : row.entries)
        if (e.key == key) return e.value.get();
    return nullptr;
}

std::string text_of(const input::Node& row, std::string_view key) {
    const input::Node* node = find(row, key);
    return node == nullptr ? std::string() : node->text;
}

double number_of(const input::Node& row, std::string_view key) {
    const std::string text = text_of(row, key);
    char* end = nullptr;
    const double x = std::strtod(text.c_str(), &end);
    return text.empty() || *end != '\0' ? 0 : x;
}

bool read_row(const input::Node& row, MeasuredTime& t) {
    const std::string name = text_of(row, "name"), algorithm = text_of(row, "algorithm");
    if (name == "all_reduce") t.kind = MoveKind::all_reduce;
    else if (name == "reduce_scatter") t.kind = MoveKind::reduce_scatter;
    else if (name == "all_gather") t.kind = MoveKind::all_gather;
    else return false;
    if (algorithm == "ring") t.algorithm = Algorithm::ring;
    else if (algorithm == "shared") t.algorithm = Algorithm::shared;
    else return false;
    const double ranks = number_of(row, "ranks"), bytes = number_of(row, "bytes");
    t.seconds = number_of(row, "seconds");
    if (!(ranks >= 1 && ranks <= 1e9 && bytes >= 1 && bytes <= 1e18 && t.seconds > 0)) return false;
    t.ranks = static_cast<int>(ranks);
    t.bytes = static_cast<std::int64_t>(bytes);
    return true;
}

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

std::vector<MeasuredTime> parse_collective_times(const std::string& text, const std::string& source, const std::string& machine) {
    input::Problems problems(source, {});
    const input::NodePtr rows = input::read_yaml(text, 0, problems);
    problems.throw_if_any();
    std::vector<MeasuredTime> times;
    std::string elsewhere;
    for (const input::NodePtr& row : rows->items) {
        MeasuredTime t;
        if (!read_row(*row, t)) continue;
        const std::string measured_on = text_of(*row, "machine");
        if (machine.empty() || measured_on == machine) times.push_back(t);
        else elsewhere = measured_on.empty() ? "an unnamed machine" : measured_on;
    }
    if (times.empty() && !elsewhere.empty())
        throw Error(Exit::refused, fmt::format("{}: measured on {}, and this is {}", source, elsewhere, machine));
    if (times.empty())
        throw Error(Exit::refused, fmt::format("{}: no row of all_reduce, reduce_scatter or all_gather by ring or shared; such a file is written by "
                                               "`quadrille bench collectives --json FILE`",
                                               source));
    return times;
}

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
