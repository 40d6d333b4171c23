// Who may write into output.directory; what is refused leaves no trace.
#include "record/output_directory.hpp"

#include "base/error.hpp"
#include "record/record_reader.hpp"
#include "record/record_writer.hpp"
#include "unit/record_sample.hpp"

#include <doctest.h>
#include <fstream>

using namespace quadrille;
namespace fs = std::filesystem;

namespace {

// A run of the model that this input begins with; a test of the mechanism, not of what a model is.
OutputUse run_of(const std::string& yaml, bool overwrite = false) {
    return {.overwrite = overwrite, .same_model = [yaml](const std::string& former) { return former.substr(0, 30) == yaml.substr(0, 30); }};
}

std::string refusal(const fs::path& directory, const OutputUse& use) {
    try {
        check_output(directory, use);
    } catch (const Error& error) {
        CHECK(error.exit() == Exit::refused);
        return error.what();
    }
    FAIL("it was not refused");
    return "";
}

void take_output(const fs::path& directory, const OutputUse& use) {
    const auto held = hold_output(directory);
    clear_output(directory, use);
}

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }
void touch(const fs::path& file) { std::ofstream(file) << "x"; }

}  // namespace

TEST_CASE("absent and empty directories are free; checking makes nothing, creating makes the parents") {
    const TemporaryDirectory directory;
    const fs::path deep = directory.path() / "runs" / "a";
    CHECK(check_output(deep, run_of("")).empty());
    CHECK(!fs::exists(directory.path() / "runs"));
    take_output(deep, run_of(""));
    CHECK(fs::is_directory(deep));
    CHECK(check_output(deep, run_of("")).empty());
}

TEST_CASE("a directory with other things is refused unless overwritten, and they survive") {
    const TemporaryDirectory directory;
    touch(directory.path() / "thesis.tex");
    CHECK(has(refusal(directory.path(), run_of("")), "is not empty"));
    CHECK(!check_output(directory.path(), run_of("", true)).empty());
    take_output(directory.path(), run_of("", true));
    CHECK(fs::exists(directory.path() / "thesis.tex"));
}

TEST_CASE("a record of the same model and no checkpoint: afresh, and it says so") {
    const TemporaryDirectory directory;
    const RunRecord record = sample_record();
    RecordWriter(directory.path()).write(record);
    touch(directory.path() / "trace.h5");
    touch(directory.path() / "run.h5.partial-host-1-0");
    const std::string other_steps = record.config_yaml + "output:\n  log_interval: 7\n";
    const std::string kept = "run-2026-01-31T12-00-00Z.h5";  // when the sample began
    CHECK(has(check_output(directory.path(), run_of(other_steps)), ("starting afresh; that record is kept as " + kept).c_str()));
    take_output(directory.path(), run_of("", true));
    CHECK(fs::exists(directory.path() / "run.h5"));
    CHECK(!fs::exists(directory.path() / "trace.h5"));
    CHECK(!fs::exists(directory.path() / "run.h5.partial-host-1-0"));
    touch(directory.path() / "trace.h5");
    take_output(directory.path(), run_of(""));
    RunRecord next = record;
    next.command = "another";
    RecordWriter(directory.path()).write(next);
    CHECK(read_record(directory.path() / kept).command == record.command);
    CHECK(read_record(directory.path() / "run.h5").command == "another");
    CHECK(!fs::exists(directory.path() / "trace.h5"));
    CHECK(fs::exists(directory.path() / "trace-2026-01-31T12-00-00Z.h5"));
    take_output(directory.path(), run_of(""));  // of the same second
    CHECK(read_record(directory.path() / "run-2026-01-31T12-00-00Z-2.h5").command == "another");

    CHECK(has(refusal(directory.path(), run_of("model:\n  num_layers: 5\n")), "another model"));
}

TEST_CASE("a run that goes on with its own checkpoint keeps what is there; one with another's wants a directory of its own") {
    const TemporaryDirectory directory;
    const fs::path& path = directory.path();
    const RunRecord record = sample_record();
    OutputUse own = run_of(record.config_yaml), other = own;
    own.resumes = own.own = other.resumes = true;
    fs::create_directories(path / "checkpoints");
    CHECK(check_output(path, own).empty());    // there may be no record yet
    CHECK(check_output(path, other).empty());
    RecordWriter(path).write(record);
    RecordWriter(path, "run-2.h5").write(record);
    touch(path / "trace.h5");
    touch(path / "run-2.h5.partial-host-1-0");
    CHECK(check_output(path, own).empty());
    take_output(path, own);
    for (const char* kept : {"run.h5", "run-2.h5", "trace.h5"}) CHECK(fs::exists(path / kept));
    CHECK(!fs::exists(path / "run-2.h5.partial-host-1-0"));
    CHECK(has(refusal(path, other), "holds run-2.h5, the record of another run than the checkpoint's"));
    other.overwrite = true;
    CHECK(has(check_output(path, other), "is overwritten"));
    own.overwrite = true;
    CHECK(check_output(path, own).empty());  // nothing is

    // Beginning afresh keeps them all, or with overwrite none but the first, which the new run's replaces.
    take_output(path, run_of(record.config_yaml));
    for (const char* kept : {"run-2026-01-31T12-00-00Z.h5", "run-2026-01-31T12-00-00Z.2.h5", "trace-2026-01-31T12-00-00Z.h5", "run.h5"})
        CHECK(fs::exists(path / kept));
    CHECK(!fs::exists(path / "run-2.h5"));
    RecordWriter(path, "run-2.h5").write(record);
    take_output(path, run_of(record.config_yaml, true));
    CHECK((fs::exists(path / "run.h5") && !fs::exists(path / "run-2.h5")));

    std::ofstream(path / "run.h5") << "no record";  // a damaged one stops no run that has its checkpoint
    CHECK(check_output(path, own).empty());
    own.same_model = [](const std::string&) { return false; };
    RecordWriter(path).write(record);
    CHECK(has(refusal(path, own), "holds the record of another model, run.h5"));
}

TEST_CASE("a damaged record, a file in the way, a path below a file") {
    const TemporaryDirectory directory;
    touch(directory.path() / "run.h5");
    CHECK(has(refusal(directory.path(), run_of("")), "cannot be read"));
    CHECK(has(refusal(directory.path() / "run.h5", run_of("")), "not a directory"));
    CHECK(has(refusal(directory.path() / "run.h5" / "below", run_of("")), "not a directory"));
}

TEST_CASE("a first record that is damaged is kept under the start of the newest, which can be read") {
    const TemporaryDirectory directory;
    const RunRecord record = sample_record();
    RecordWriter(directory.path(), "run-2.h5").write(record);
    touch(directory.path() / "run.h5");
    const std::string said = check_output(directory.path(), run_of(record.config_yaml));
    CHECK(has(said, "starting afresh; that record is kept as run-20"));
    take_output(directory.path(), run_of(record.config_yaml));
    CHECK(fs::exists(directory.path() / "run.h5"));
    CHECK(!fs::exists(directory.path() / "run-2.h5"));
}

TEST_CASE("what a run leaves that was killed before its record stood is nothing") {
    const TemporaryDirectory directory;
    fs::create_directory(directory.path() / "checkpoints");
    touch(directory.path() / "run.h5.partial-host-12-0");
    CHECK(check_output(directory.path(), run_of("")).empty());
    take_output(directory.path(), run_of(""));
    CHECK(!fs::exists(directory.path() / "run.h5.partial-host-12-0"));
    touch(directory.path() / "checkpoints" / "thesis.tex");
    CHECK(has(refusal(directory.path(), run_of("")), "is not empty"));
}
