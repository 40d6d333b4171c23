#include "record/record_reader.hpp"

#include "base/error.hpp"
#include "record/hdf5_image.hpp"
#include "record/replace_file.hpp"

#include <fmt/format.h>

#include <limits>

namespace quadrille {
namespace {

using Dims = std::vector<hsize_t>;

void expect(const Hdf5ImageReader& file, const std::string& path, const Dims& wanted) {
    const Dims found = file.dims(path);
    if (found != wanted)
        throw Error(Exit::io_failed, fmt::format("{}: {} has the shape [{}] and not [{}]", file.name(), path,
                                                 fmt::join(found, ", "), fmt::join(wanted, ", ")));
}

std::vector<double> doubles(const Hdf5ImageReader& file, const std::string& path, const Dims& dims) {
    expect(file, path, dims);
    return file.doubles(path);
}

std::vector<std::int64_t> ints(const Hdf5ImageReader& file, const std::string& path, const Dims& dims) {
    expect(file, path, dims);
    return file.ints(path);
}

// A table of bytes, of which reports make sums.
std::vector<std::int64_t> bytes(const Hdf5ImageReader& file, const std::string& path, const Dims& dims) {
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max() / 4;
    std::vector<std::int64_t> table = ints(file, path, dims);
    std::int64_t left = most;
    for (const std::int64_t x : table) {
        if (x < RunRecord::not_told || x > left)
            throw Error(Exit::io_failed,
                        fmt::format("{}: {} has {} in it, allowed: numbers of bytes, all together up to {}", file.name(), path, x, most));
        left -= x;
    }
    return table;
}

template <std::size_t n>
void expect_names(const Hdf5ImageReader& file, const std::string& path, const std::array<std::string_view, n>& names) {
    const std::vector<std::string> found = file.strings(path), wanted(names.begin(), names.end());
    if (found != wanted)
        throw Error(Exit::io_failed,
                    fmt::format("{}: {} are {} and not {}", file.name(), path, fmt::join(found, ", "), fmt::join(wanted, ", ")));
}

template <class Row, class Value, class Field>
void fill(std::vector<Row>& rows, const std::vector<Value>& values, Field Row::*field) {
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i].*field = static_cast<Field>(values[i]);
}

void read_grid(const Hdf5ImageReader& file, RunRecord& record) {
    record.hosts = file.strings("/grid/hosts");
    const std::size_t n = record.hosts.size();
    const auto flat = ints(file, "/grid/coordinates", {n, 4});
    record.coordinates.resize(n);
    for (std::size_t i = 0; i < flat.size(); ++i) record.coordinates[i / 4][i % 4] = flat[i];
}

void read_steps(const Hdf5ImageReader& file, std::vector<StepRow>& rows) {
    const auto steps = file.ints("/steps/step");
    const Dims dims = {steps.size()};
    rows.resize(steps.size());
    fill(rows, steps, &StepRow::step);
    fill(rows, doubles(file, "/steps/loss", dims), &StepRow::loss);
    fill(rows, doubles(file, "/steps/grad_norm", dims), &StepRow::grad_norm);
    fill(rows, doubles(file, "/steps/clip_factor", dims), &StepRow::clip_factor);
    fill(rows, doubles(file, "/steps/learning_rate", dims), &StepRow::learning_rate);
    fill(rows, doubles(file, "/steps/loss_scale", dims), &StepRow::loss_scale);
    fill(rows, ints(file, "/steps/tokens", dims), &StepRow::tokens);
    fill(rows, doubles(file, "/steps/residual_norm", dims), &StepRow::residual_norm);
    fill(rows, doubles(file, "/steps/seconds", dims), &StepRow::seconds);
    fill(rows, ints(file, "/steps/data_hash", dims), &StepRow::data_hash);
}

void read_evaluation(const Hdf5ImageReader& file, std::vector<EvaluationRow>& rows) {
    const auto steps = file.ints("/evaluation/step");
    const Dims dims = {steps.size()};
    rows.resize(steps.size());
    fill(rows, steps, &EvaluationRow::step);
    fill(rows, doubles(file, "/evaluation/loss", dims), &EvaluationRow::loss);
    fill(rows, doubles(file, "/evaluation/seconds", dims), &EvaluationRow::seconds);
}

void read_ledgers(const Hdf5ImageReader& file, RunRecord& record) {
    const std::size_t n = record.coordinates.size();
    expect_names(file, "/time/categories", RunRecord::categories);
    record.time_seconds = doubles(file, "/time/seconds", {record.steps.size(), n, RunRecord::categories.size()});
    expect_names(file, "/memory/tiers", RunRecord::tiers);
    expect_names(file, "/memory/books", RunRecord::books);
    const Dims peaks = {n, RunRecord::tiers.size(), RunRecord::books.size()};
    record.predicted_peak = bytes(file, "/memory/predicted_peak", peaks);
    record.measured_peak = bytes(file, "/memory/measured_peak", peaks);
    const Dims cells = {n, RunRecord::tiers.size()};
    record.reserved = bytes(file, "/memory/reserved", cells);
    record.huge_pages = bytes(file, "/memory/huge_pages", cells);
    record.shared = bytes(file, "/memory/shared", {n});
    record.process_peak = bytes(file, "/memory/process_peak", {n});
    record.wire_axes = file.strings("/wire/axes");
    const Dims wire = {n, record.wire_axes.size()};
    record.wire_predicted = bytes(file, "/wire/predicted", wire);
    record.wire_sent = bytes(file, "/wire/sent", wire);
    record.wire_uncompressed = bytes(file, "/wire/uncompressed", wire);
    record.wire_busy = doubles(file, "/wire/busy", {record.steps.size(), n, record.wire_axes.size()});
    record.wire_exposed = doubles(file, "/wire/exposed", {record.steps.size(), n, record.wire_axes.size()});
    record.compute_beside = doubles(file, "/wire/compute_beside", {record.steps.size(), n});
    record.compute_alone = doubles(file, "/wire/compute_alone", {record.steps.size(), n});
    record.wire_estimated = file.int_attribute("/wire/sent", "estimated") != 0;
    expect_names(file, "/copies/queues", RunRecord::copy_queues);
    const Dims copies = {n, RunRecord::copy_queues.size()};
    record.copies_predicted = bytes(file, "/copies/predicted", copies);
    record.copies_moved = bytes(file, "/copies/moved", copies);
    record.model_flops = doubles(file, "/flops/model", {}).front();
    record.hardware_flops = doubles(file, "/flops/hardware", {}).front();
}

}  // namespace

RunRecord read_record(const std::filesystem::path& path, RecordOrigin* origin) {
    const Hdf5ImageReader file(path.string(), read_file(path));
    if (!file.exists("/steps") || !file.exists("/time"))
        throw Error(Exit::io_failed,
                    fmt::format("{}: is an HDF5 file but not a run record (no /steps or no /time)", path.string()));
    const std::string schema = file.text_attribute("/", "schema");
    if (schema != record_schema)
        throw Error(Exit::io_failed,
                    fmt::format("{}: its schema is {} and this program reads {}", path.string(), schema, record_schema));
    RunRecord record;
    if (origin) *origin = {schema, file.text_attribute("/", "version"), file.text_attribute("/", "git_commit")};
    record.command = file.text_attribute("/", "command");
    record.start_time = file.text_attribute("/", "start_time");
    record.exit_code = file.int_attribute("/", "exit_code");
    record.complete = file.int_attribute("/", "complete") != 0;
    if (const auto origins = file.text_attributes("/"); origins.contains("continues")) {
        record.continues = origins.at("continues");
        record.continues_after = file.int_attribute("/", "continues_after");
    }
    record.config_yaml = file.text_attribute("/config", "yaml");
    record.choices = file.text_attributes("/choices");
    record.environment = file.text_attributes("/environment");
    read_grid(file, record);
    read_steps(file, record.steps);
    read_evaluation(file, record.evaluations);
    read_ledgers(file, record);
    return record;
}

}  // namespace quadrille
