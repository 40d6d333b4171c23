#include "record/record_writer.hpp"

#include "base/error.hpp"
#include "record/hdf5_image.hpp"
#include "record/replace_file.hpp"
#include "record/version.hpp"

#include <algorithm>

namespace quadrille {
namespace {

constexpr double share_of_time = 0.01;  // writing may take this much of the run
constexpr DatasetText name_text(std::string_view description) { return {"name", description}; }

// One field of every row, as a column.
template <class Value, class Row, class Field>
std::vector<Value> column(const std::vector<Row>& rows, Field field) {
    std::vector<Value> values;
    values.reserve(rows.size());
    for (const Row& row : rows) values.push_back(static_cast<Value>(row.*field));
    return values;
}

template <std::size_t n>
std::vector<std::string> names(const std::array<std::string_view, n>& views) {
    return {views.begin(), views.end()};
}

// A table that was never measured reads as zeros.
std::vector<std::int64_t> filled(const std::vector<std::int64_t>& values, std::size_t count) {
    return values.empty() ? std::vector<std::int64_t>(count) : values;
}

std::string distinct_hosts(const RunRecord& record) {
    std::string list;
    std::vector<std::string> seen;
    for (const std::string& host : record.hosts)
        if (std::find(seen.begin(), seen.end(), host) == seen.end()) {
            list += (seen.empty() ? "" : ",") + host;
            seen.push_back(host);
        }
    return list;
}

void write_origin(Hdf5ImageWriter& file, const RunRecord& record) {
    file.attribute("/", "schema", std::string(record_schema));
    file.attribute("/", "version", std::string(version()));
    file.attribute("/", "git_commit", std::string(git_commit()));
    file.attribute("/", "command", record.command);
    file.attribute("/", "start_time", record.start_time);
    file.attribute("/", "exit_code", record.exit_code);
    file.attribute("/", "complete", std::int64_t{record.complete});
    if (!record.continues.empty()) {
        file.attribute("/", "continues", record.continues);
        file.attribute("/", "continues_after", record.continues_after);
    }
    file.group("/config");
    file.attribute("/config", "yaml", record.config_yaml);
    file.group("/choices");
    for (const auto& [key, value] : record.choices) file.attribute("/choices", key, value);
    file.group("/environment");
    for (const auto& [name, value] : record.environment)
        if (name != "hosts") file.attribute("/environment", name, value);
    file.attribute("/environment", "hosts", distinct_hosts(record));
}

void write_grid(Hdf5ImageWriter& file, const RunRecord& record) {
    std::vector<std::int64_t> flat;
    for (const auto& coordinate : record.coordinates) flat.insert(flat.end(), coordinate.begin(), coordinate.end());
    file.group("/grid");
    file.dataset("/grid/coordinates", {record.coordinates.size(), 4}, flat,
                 {"1", "[rank, 4] each rank's place on the axes dp, tp, pp, sp"});
    file.dataset("/grid/hosts", record.hosts, name_text("[rank] the machine each rank ran on"));
}

void write_steps(Hdf5ImageWriter& file, const std::vector<StepRow>& steps) {
    const auto doubles = [&](const char* path, double StepRow::*field, DatasetText text) {
        file.dataset(path, {steps.size()}, column<double>(steps, field), text);
    };
    const auto ints = [&](const char* path, auto field, DatasetText text) {
        file.dataset(path, {steps.size()}, column<std::int64_t>(steps, field), text);
    };
    file.group("/steps");
    ints("/steps/step", &StepRow::step, {"1", "[step] number of the optimizer step, from 1"});
    doubles("/steps/loss", &StepRow::loss, {"nat", "[step] mean cross-entropy over the counted tokens of the global batch"});
    doubles("/steps/grad_norm", &StepRow::grad_norm, {"1", "[step] norm of the whole gradient before clipping"});
    doubles("/steps/clip_factor", &StepRow::clip_factor,
            {"1", "[step] what clipping multiplied the gradient by; 1: not clipped"});
    doubles("/steps/learning_rate", &StepRow::learning_rate, {"1", "[step] learning rate of the update"});
    doubles("/steps/loss_scale", &StepRow::loss_scale, {"1", "[step] factor on the loss in the step's backward pass; 1 but for fp16"});
    ints("/steps/tokens", &StepRow::tokens, {"token", "[step] counted tokens of the global batch"});
    doubles("/steps/residual_norm", &StepRow::residual_norm,
            {"1", "[step] norm of what compressed gradients have left unsent, over all ranks; 0 without error feedback"});
    doubles("/steps/seconds", &StepRow::seconds, {"s", "[step] wall clock of the step on rank 0"});
    ints("/steps/data_hash", &StepRow::data_hash,
         {"1", "[step] hash of the global batch's tokens, the same on every grid; 64 bits"});
}

void write_evaluation(Hdf5ImageWriter& file, const std::vector<EvaluationRow>& rows) {
    file.group("/evaluation");
    file.dataset("/evaluation/step", {rows.size()}, column<std::int64_t>(rows, &EvaluationRow::step),
                 {"1", "[evaluation] the optimizer step it followed"});
    file.dataset("/evaluation/loss", {rows.size()}, column<double>(rows, &EvaluationRow::loss),
                 {"nat", "[evaluation] mean cross-entropy over the counted tokens held out"});
    file.dataset("/evaluation/seconds", {rows.size()}, column<double>(rows, &EvaluationRow::seconds),
                 {"s", "[evaluation] wall clock of the evaluation, outside every step's"});
}

void write_time(Hdf5ImageWriter& file, const RunRecord& record) {
    file.group("/time");
    file.dataset("/time/categories", names(RunRecord::categories), name_text("[category] what a rank's time is charged to"));
    file.dataset("/time/seconds", {record.steps.size(), record.coordinates.size(), RunRecord::categories.size()},
                 record.time_seconds, {"s", "[step, rank, category] sums over category to the step's wall clock on that rank"});
}

void write_memory(Hdf5ImageWriter& file, const RunRecord& record) {
    const std::size_t n = record.coordinates.size();
    const std::vector<hsize_t> dims = {n, RunRecord::tiers.size(), RunRecord::books.size()};
    file.group("/memory");
    file.dataset("/memory/tiers", names(RunRecord::tiers), name_text("[tier] the kinds of memory"));
    file.dataset("/memory/books", names(RunRecord::books), name_text("[book] what a tensor is accounted as; each is in one"));
    file.dataset("/memory/predicted_peak", dims, filled(record.predicted_peak, n * RunRecord::peak_cells),
                 {"byte", "[rank, tier, book] compiler's bytes at the tier's high-water mark"});
    file.dataset("/memory/measured_peak", dims, filled(record.measured_peak, n * RunRecord::peak_cells),
                 {"byte", "[rank, tier, book] bytes that ran, at the tier's high-water mark"});
    const std::size_t cells = n * RunRecord::tiers.size();
    file.dataset("/memory/reserved", {n, RunRecord::tiers.size()}, filled(record.reserved, cells),
                 {"byte", "[rank, tier] what the run took at its start: the arenas, what collectives pass through, and nvme's file"});
    file.dataset("/memory/huge_pages", {n, RunRecord::tiers.size()}, filled(record.huge_pages, cells),
                 {"byte", "[rank, tier] of the arenas, what the system gave in huge pages; -1: it does not tell"});
    file.dataset("/memory/shared", {n}, filled(record.shared, n),
                 {"byte", "[rank] of other ranks' memory that the process maps: process_peak counts it for each of them"});
    file.dataset("/memory/process_peak", {n}, filled(record.process_peak, n),
                 {"byte", "[rank] the operating system's peak of the process"});
}

void write_wire(Hdf5ImageWriter& file, const RunRecord& record) {
    const std::size_t n = record.coordinates.size(), axes = record.wire_axes.size();
    file.group("/wire");
    file.dataset("/wire/axes", record.wire_axes, name_text("[axis] axes of the grid, sets of them joined by +"));
    file.dataset("/wire/predicted", {n, axes}, filled(record.wire_predicted, n * axes),
                 {"byte", "[rank, axis] bytes per step that the program says each rank sends"});
    file.dataset("/wire/sent", {n, axes}, filled(record.wire_sent, n * axes),
                 {"byte", "[rank, axis] bytes per step that each rank sent"});
    file.dataset("/wire/uncompressed", {n, axes}, filled(record.wire_uncompressed, n * axes),
                 {"byte", "[rank, axis] bytes per step that each rank would send if no gradient were compressed"});
    file.attribute("/wire/sent", "estimated", std::int64_t{record.wire_estimated});
    const std::size_t steps = record.steps.size();
    file.dataset("/wire/busy", {steps, n, axes}, record.wire_busy, {"s", "[step, rank, axis] in which at least one move was under way"});
    file.dataset("/wire/exposed", {steps, n, axes}, record.wire_exposed, {"s", "[step, rank, axis] in which the rank only waited for moves"});
    file.dataset("/wire/compute_beside", {steps, n}, record.compute_beside, {"s", "[step, rank] arithmetic while a move was under way"});
    file.dataset("/wire/compute_alone", {steps, n}, record.compute_alone,
                 {"s", "[step, rank] what that arithmetic takes with none under way, by the like operations of the step"});
}

void write_copies(Hdf5ImageWriter& file, const RunRecord& record) {
    const std::size_t n = record.coordinates.size(), queues = RunRecord::copy_queues.size();
    file.group("/copies");
    file.dataset("/copies/queues", names(RunRecord::copy_queues), name_text("[queue] from host memory, to it, and between it and disk"));
    file.dataset("/copies/predicted", {n, queues}, filled(record.copies_predicted, n * queues),
                 {"byte", "[rank, queue] bytes per step that the program moves between tiers"});
    file.dataset("/copies/moved", {n, queues}, filled(record.copies_moved, n * queues), {"byte", "[rank, queue] bytes per step that were moved"});
}

void write_flops(Hdf5ImageWriter& file, const RunRecord& record) {
    file.group("/flops");
    file.dataset("/flops/model", {}, std::vector<double>{record.model_flops},
                 {"flop", "per step, whole job: Narayanan et al. 2021, eq. 3, without its recompute factor"});
    file.dataset("/flops/hardware", {}, std::vector<double>{record.hardware_flops},
                 {"flop", "per step, whole job: what the program executes"});
}

}  // namespace

RecordWriter::RecordWriter(std::filesystem::path directory, const std::string& name) : path_(std::move(directory) / name), born_(Clock::now()) {}

void RecordWriter::write(const RunRecord& record) {
    record.check_shapes();
    const Clock::time_point begin = Clock::now();
    Hdf5ImageWriter file(path_.string());
    write_origin(file, record);
    write_grid(file, record);
    write_steps(file, record.steps);
    write_evaluation(file, record.evaluations);
    write_time(file, record);
    write_memory(file, record);
    write_wire(file, record);
    write_copies(file, record);
    write_flops(file, record);
    replace_file(path_, file.finish());
    last_ = std::chrono::duration<double>(Clock::now() - begin).count();
    spent_ += last_;
    written_ = true;
}

bool RecordWriter::due(Clock::time_point now) const {
    const double elapsed = std::chrono::duration<double>(now - born_).count();
    return !written_ || spent_ + last_ <= share_of_time * elapsed;
}

}  // namespace quadrille
