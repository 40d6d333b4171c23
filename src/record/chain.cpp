#include "record/chain.hpp"

#include "base/error.hpp"
#include "record/record_reader.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

namespace quadrille {
namespace {

namespace fs = std::filesystem;

// The number of a record of this name, 0 of any other name: run-2026-01-31T12-00-00Z.h5 is none of a chain.
int number_of(const std::string& name) {
    constexpr std::string_view front = "run-", back = ".h5";
    if (name == "run.h5") return 1;
    if (!name.starts_with(front) || !name.ends_with(back) || name.size() <= front.size() + back.size()) return 0;
    const char *begin = name.data() + front.size(), *end = name.data() + name.size() - back.size();
    int number = 0;
    const auto [rest, failure] = std::from_chars(begin, end, number);
    return failure == std::errc() && rest == end && number >= 2 && name == record_name(number) ? number : 0;
}

// Whether the record tells of training up to this step, whose state a checkpoint holds.
bool reaches(const RunRecord& record, std::int64_t step) {
    const auto is_it = [&](const StepRow& row) { return row.step == step; };
    return step == record.continues_after || std::any_of(record.steps.begin(), record.steps.end(), is_it);
}

// What was measured stands for this run too, until it has measured, where the plan is the same.
void take_measured(RunRecord& record, const RunRecord& former) {
    if (former.predicted_peak == record.predicted_peak) record.measured_peak = former.measured_peak;
    if (former.wire_axes == record.wire_axes && former.wire_predicted == record.wire_predicted) record.wire_sent = former.wire_sent;
    if (former.copies_predicted == record.copies_predicted) record.copies_moved = former.copies_moved;
}

void take_rows(RunRecord& record, const RunRecord& former, std::int64_t step) {
    const auto ranks = static_cast<std::ptrdiff_t>(former.coordinates.size());
    const auto axes = static_cast<std::ptrdiff_t>(former.wire_axes.size());
    const auto kept = std::count_if(former.steps.begin(), former.steps.end(), [&](const StepRow& row) { return row.step <= step; });
    record.steps.assign(former.steps.begin(), former.steps.begin() + kept);
    const auto take = [&](std::vector<double> RunRecord::*table, std::ptrdiff_t cells) {
        (record.*table).assign((former.*table).begin(), (former.*table).begin() + kept * ranks * cells);
    };
    take(&RunRecord::time_seconds, static_cast<std::ptrdiff_t>(RunRecord::categories.size()));
    for (const auto table : {&RunRecord::wire_busy, &RunRecord::wire_exposed}) take(table, axes);
    for (const auto table : {&RunRecord::compute_beside, &RunRecord::compute_alone}) take(table, 1);
    for (const EvaluationRow& row : former.evaluations)
        if (row.step <= step) record.evaluations.push_back(row);
    record.start_time = former.start_time;
    record.continues = former.continues;
    record.continues_after = former.continues_after;
}

}  // namespace

std::string record_name(int number) { return number == 1 ? "run.h5" : fmt::format("run-{}.h5", number); }

std::vector<int> record_numbers(const fs::path& directory) {
    std::vector<int> numbers;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(directory, ignored))
        if (const int number = number_of(entry.path().filename().string()); number > 0) numbers.push_back(number);
    std::sort(numbers.begin(), numbers.end());
    return numbers;
}

fs::path newest_record(const fs::path& directory) {
    const std::vector<int> numbers = record_numbers(directory);
    return directory / record_name(numbers.empty() ? 1 : numbers.back());
}

RecordPlace continue_record(RunRecord& record, const fs::path& directory, std::int64_t step, const std::string& checkpoint) {
    const std::vector<int> numbers = record_numbers(directory);
    record.continues = checkpoint;
    record.continues_after = step;
    if (numbers.empty()) return {};
    const std::string newest = record_name(numbers.back()), next = record_name(numbers.back() + 1);
    record.continues = newest;
    std::optional<RunRecord> former;
    std::string why;
    try {
        former = read_record(directory / newest);
    } catch (const Error& error) {
        why = fmt::format("{} cannot be read ({})", newest, error.what());
    }
    if (former && former->coordinates != record.coordinates) why = fmt::format("{} is of another grid", newest);
    else if (former && former->wire_axes != record.wire_axes) why = fmt::format("{} tells of messages over other axes", newest);
    else if (former && !reaches(*former, step)) why = fmt::format("{} does not tell of step {}", newest, step);
    if (!why.empty()) return {next, fmt::format("record: {}, so {} continues it", why, next)};
    const auto rows = former->steps.size();
    take_rows(record, *former, step);
    take_measured(record, *former);
    const auto dropped = rows - record.steps.size();
    return {newest, fmt::format("record: {} goes on after step {}{}", newest, step,
                                dropped ? fmt::format("; its rows of {} later step{} are dropped", dropped, dropped == 1 ? "" : "s") : "")};
}

}  // namespace quadrille
