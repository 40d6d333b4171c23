#include "record/trace_report.hpp"

#include "base/error.hpp"
#include "base/format.hpp"
#include "record/hdf5_image.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace quadrille {
namespace {

constexpr std::size_t most_kinds = 12;

struct Spent {
    std::int64_t events = 0;
    double seconds = 0;
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

std::string table(const std::map<std::string, Spent>& spent, const char* head, double span, double rank_steps, std::size_t most) {
    std::vector<std::pair<std::string, Spent>> sorted(spent.begin(), spent.end());
    std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
    sorted.resize(std::min(sorted.size(), most));
    std::vector<std::vector<std::string>> rows = {{head, "events", "seconds", "share"}};
    for (const auto& [name, s] : sorted)
        rows.push_back({name, std::to_string(s.events), format_seconds(s.seconds / rank_steps), format_percent(s.seconds / rank_steps, span)});
    return format_table(rows);
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
    if (begin.empty()) return "a trace without events\n";
    std::map<std::string, Spent> by_queue, by_kind;
    std::map<std::pair<std::int64_t, std::int64_t>, std::pair<double, double>> spans;  // of each rank's steps
    for (std::size_t i = 0; i < begin.size(); ++i) {
        for (Spent* s : {&by_queue[queues[static_cast<std::size_t>(queue[i])]], &by_kind[kind_of(ops[static_cast<std::size_t>(op[i])])]}) {
            ++s->events;
            s->seconds += end[i] - begin[i];
        }
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
    std::string text = fmt::format("trace of {} on {}: {} events, {} a step; seconds per rank and step\n", distinct(steps, "step"),
                                   distinct(ranks, "rank"), begin.size(), format_seconds(span));
    text += table(by_queue, "queue", span, rank_steps, by_queue.size());
    return text + "\n" + table(by_kind, "op", span, rank_steps, most_kinds);
}

}  // namespace quadrille
