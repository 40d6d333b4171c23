#include "record/trace_report.hpp"

#include "base/error.hpp"
#include "base/format.hpp"
#include "record/hdf5_image.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

namespace quadrille {
namespace {

constexpr std::size_t most_kinds = 12;

// One event: of which rank's which step, and when.
struct Stretch {
    std::pair<std::int64_t, std::int64_t> at;
    double begin = 0, end = 0;
};
using Stretches = std::vector<Stretch>;

// Seconds in which at least one of them was under way, over all ranks and steps: those of one queue may overlap, and count once.
double busy_seconds(Stretches of) {
    std::sort(of.begin(), of.end(), [](const Stretch& a, const Stretch& b) { return std::tie(a.at, a.begin) < std::tie(b.at, b.begin); });
    double seconds = 0, until = 0;
    for (std::size_t i = 0; i < of.size(); ++i) {
        if (i == 0 || of[i].at != of[i - 1].at) until = of[i].begin;
        seconds += std::max(0.0, of[i].end - std::max(until, of[i].begin));
        until = std::max(until, of[i].end);
    }
    return seconds;
}

struct Row {
    std::string name;
    double events = 0, seconds = 0;  // of all ranks and steps
};

// "F layers.0 matmul@3", as the runtime labels its ops: the kind of work in it, "F matmul".
std::string kind_of(std::string label) {
    label = label.substr(0, label.find('@'));
    const auto first = label.find(' '), last = label.rfind(' ');
    return first == last ? label : label.substr(0, first) + label.substr(last);
}

std::vector<std::int64_t> rows_of(const Hdf5ImageReader& file, const std::string& path, std::size_t count, std::size_t names) {
    std::vector<std::int64_t> rows = file.ints(path);
    const auto names_one = [&](std::int64_t r) { return r >= 0 && r < static_cast<std::int64_t>(names); };
    if (rows.size() == count && std::all_of(rows.begin(), rows.end(), names_one)) return rows;
    throw Error(Exit::io_failed,
                fmt::format("{}: {} has {} entries for {} events and {} names", file.name(), path, rows.size(), count, names));
}

// The names that were busy longest, at most so many; what is left of the others in one row.
std::string table(const std::map<std::string, Stretches>& by_name, const char* head, double span, double rank_steps, std::size_t most) {
    std::vector<Row> rows;
    for (const auto& [name, of] : by_name) rows.push_back({name, static_cast<double>(of.size()), busy_seconds(of)});
    std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.seconds > b.seconds; });
    if (rows.size() > most) {
        Stretches rest;
        for (std::size_t i = most; i < rows.size(); ++i) {
            const Stretches& of = by_name.at(rows[i].name);
            rest.insert(rest.end(), of.begin(), of.end());
        }
        const std::string name = fmt::format("the other {}", rows.size() - most);
        rows.resize(most);
        rows.push_back({name, static_cast<double>(rest.size()), busy_seconds(rest)});
    }
    std::vector<std::vector<std::string>> cells = {{head, "events", "seconds", "share"}};
    for (const Row& r : rows)
        cells.push_back({r.name, fmt::format("{:.5g}", r.events / rank_steps), format_seconds(r.seconds / rank_steps),
                         format_percent(r.seconds / rank_steps, span)});
    return format_table(cells);
}

}  // namespace

std::string trace_summary(const Hdf5ImageReader& file) {
    const std::vector<std::string> queues = file.strings("/trace/queues"), ops = file.strings("/trace/ops");
    const std::vector<double> begin = file.doubles("/trace/begin"), end = file.doubles("/trace/end");
    const std::vector<std::int64_t> steps = file.ints("/trace/step"), ranks = file.ints("/trace/rank");
    const auto queue = rows_of(file, "/trace/queue", begin.size(), queues.size()), op = rows_of(file, "/trace/op", begin.size(), ops.size());
    if (end.size() != begin.size() || steps.size() != begin.size() || ranks.size() != begin.size())
        throw Error(Exit::io_failed, fmt::format("{}: the columns of /trace have {}, {}, {} and {} entries", file.name(), begin.size(),
                                                 end.size(), steps.size(), ranks.size()));
    const auto is_finite = [](double seconds) { return std::isfinite(seconds); };
    if (!std::all_of(begin.begin(), begin.end(), is_finite) || !std::all_of(end.begin(), end.end(), is_finite))
        throw Error(Exit::io_failed, fmt::format("{}: has an event that begins or ends at no moment", file.name()));
    if (begin.empty()) return "a trace without events\n";
    std::map<std::string, Stretches> by_queue, by_kind;
    std::map<std::pair<std::int64_t, std::int64_t>, std::pair<double, double>> spans;  // of each rank's steps
    for (std::size_t i = 0; i < begin.size(); ++i) {
        for (Stretches* s : {&by_queue[queues[static_cast<std::size_t>(queue[i])]], &by_kind[kind_of(ops[static_cast<std::size_t>(op[i])])]})
            s->push_back({{ranks[i], steps[i]}, begin[i], end[i]});
        auto& span = spans.try_emplace({ranks[i], steps[i]}, begin[i], end[i]).first->second;
        span = {std::min(span.first, begin[i]), std::max(span.second, end[i])};
    }
    double span = 0;
    for (const auto& [at, s] : spans) span += s.second - s.first;
    const auto rank_steps = static_cast<double>(spans.size());
    span /= rank_steps;
    const auto distinct = [](const std::vector<std::int64_t>& of, const char* noun) {
        return format_number_of(static_cast<std::int64_t>(std::set(of.begin(), of.end()).size()), noun);
    };
    std::string text = fmt::format("trace of {} on {}: {} events, {} a step\n"
                                   "events and seconds per rank and step; events at the same time count once in the seconds\n",
                                   distinct(steps, "step"), distinct(ranks, "rank"), begin.size(), format_seconds(span));
    text += table(by_queue, "queue", span, rank_steps, by_queue.size());
    return text + "\n" + table(by_kind, "op", span, rank_steps, most_kinds);
}

}  // namespace quadrille
