#include "record/overlap_report.hpp"

#include "base/format.hpp"

#include <fmt/format.h>
#include <algorithm>

namespace quadrille {
namespace {

// Mean over steps but the first, and over ranks, of a [step, rank, column] table.
double mean(const RunRecord& r, const std::vector<double>& table, std::size_t columns, std::size_t column) {
    const std::size_t ranks = r.coordinates.size(), steps = r.steps.size(), from = steps > 1 ? 1 : 0;
    double sum = 0;
    for (std::size_t row = from * ranks; row < steps * ranks; ++row) sum += table[row * columns + column];
    return sum / static_cast<double>((steps - from) * ranks);
}

struct AxisTimes {
    std::string name;
    double busy = 0, exposed = 0;
    std::string hidden() const { return format_percent(std::max(0.0, busy - exposed), busy); }
};

std::vector<AxisTimes> axis_times(const RunRecord& r) {
    std::vector<AxisTimes> all;
    if (r.steps.empty() || r.coordinates.empty()) return all;
    const std::size_t n = r.wire_axes.size();
    for (std::size_t a = 0; a < n; ++a) {
        AxisTimes t{r.wire_axes[a], mean(r, r.wire_busy, n, a), mean(r, r.wire_exposed, n, a)};
        if (t.busy > 0) all.push_back(t);
    }
    return all;
}

// "arithmetic beside them ran at 93.0 % of its rate (1.2 s a step)"; empty where too little was beside them to compare.
std::string rate_beside(const RunRecord& r) {
    const double seconds = mean(r, r.compute_beside, 1, 0), alone = mean(r, r.compute_alone, 1, 0);
    constexpr double least = 1e-3;  // seconds a step: of less, clocks and what else runs on the cores say more than the moves
    if (!(seconds >= least && alone > 0)) return "";
    const std::string kept = format_percent(std::min(alone, seconds), seconds);  // more than all is noise
    return fmt::format("arithmetic beside them ran at {} of its rate ({} a step)", kept, format_seconds(seconds));
}

}  // namespace

std::string overlap_ledger(const RunRecord& r) {
    std::vector<std::vector<std::string>> rows = {{"", "under way", "exposed", "hidden"}};
    for (const AxisTimes& t : axis_times(r)) rows.push_back({t.name, format_seconds(t.busy), format_seconds(t.exposed), t.hidden()});
    if (rows.size() == 1) return "";
    const std::string rate = rate_beside(r);
    return fmt::format("moves between ranks, per step, mean of {}\n{}{}", format_number_of(r.ranks(), "rank"), format_table(rows),
                       rate.empty() ? "" : "  " + rate + "\n");
}

std::string overlap_line(const RunRecord& r) {
    std::string text;
    for (const AxisTimes& t : axis_times(r))
        text += fmt::format("{}{} {} a step, {} hidden", text.empty() ? "moves between ranks: " : "; ", t.name, format_seconds(t.busy), t.hidden());
    if (text.empty()) return "";
    const std::string rate = rate_beside(r);
    return rate.empty() ? text : text + "; " + rate;
}

}  // namespace quadrille
