// The rows of a file of measured times. Pure: who has read the file and for whom is not known here.
#include "config/yaml_reader.hpp"
#include "train/collective_times.hpp"

#include <cmath>
#include <cstdlib>

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
    if (!(ranks >= 1 && ranks <= 1e9 && bytes >= 1 && bytes <= 1e18 && t.seconds > 0 && std::isfinite(t.seconds))) return false;
    t.ranks = static_cast<int>(ranks);
    t.bytes = static_cast<std::int64_t>(bytes);
    return true;
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

}  // namespace quadrille
