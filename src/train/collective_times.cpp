#include "train/collective_times.hpp"

#include "config/yaml_reader.hpp"
#include "train/agree.hpp"

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

// The file's name and text, a line and the rest; empty where the usual place has none.
std::string read_file() {
    const char* named = std::getenv("QUADRILLE_COLLECTIVES");
    const bool asked = named != nullptr && *named != '\0';
    const std::filesystem::path path = asked ? std::filesystem::path(named) : usual_place();
    std::error_code unknown;
    if (path.empty() || (!asked && !std::filesystem::exists(path, unknown))) return {};
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    if (!file || text.str().empty()) throw Error(Exit::refused, fmt::format("the measured collectives, {}, cannot be read", path.string()));
    parse_collective_times(text.str(), path.string());  // here, where a complaint is one and not one per rank
    return path.string() + "\n" + text.str();
}

}  // namespace

std::vector<MeasuredTime> parse_collective_times(const std::string& text, const std::string& source) {
    input::Problems problems(source, {});
    const input::NodePtr rows = input::read_yaml(text, 0, problems);
    problems.throw_if_any();
    std::vector<MeasuredTime> times;
    for (const input::NodePtr& row : rows->items)
        if (MeasuredTime t; read_row(*row, t)) times.push_back(t);
    if (times.empty())
        throw Error(Exit::refused, fmt::format("{}: no row of all_reduce, reduce_scatter or all_gather by ring or shared; such a file is written by "
                                               "`quadrille bench collectives --json FILE`",
                                               source));
    return times;
}

CollectiveTimes measured_collective_times(const World& world) {
    const std::string found = on_first_rank(world, read_file);
    if (found.empty()) return {};
    const std::string source = found.substr(0, found.find('\n'));
    return {source, parse_collective_times(found.substr(source.size() + 1), source)};
}

}  // namespace quadrille
