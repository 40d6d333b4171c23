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

std::string refusal(const fs::path& directory, const std::string& yaml) {
    try {
        check_output(directory, false, yaml);
    } catch (const Error& error) {
        CHECK(error.exit() == Exit::refused);
        return error.what();
    }
    FAIL("it was not refused");
    return "";
}

bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }
void touch(const fs::path& file) { std::ofstream(file) << "x"; }

}  // namespace

TEST_CASE("absent and empty directories are free; checking makes nothing, creating makes the parents") {
    const TemporaryDirectory directory;
    const fs::path deep = directory.path() / "runs" / "a";
    CHECK(check_output(deep, false, "").empty());
    CHECK(!fs::exists(directory.path() / "runs"));
    create_output(deep, false);
    CHECK(fs::is_directory(deep));
    CHECK(check_output(deep, false, "").empty());
}

TEST_CASE("a directory with other things is refused unless overwritten, and they survive") {
    const TemporaryDirectory directory;
    touch(directory.path() / "thesis.tex");
    CHECK(has(refusal(directory.path(), ""), "is not empty"));
    CHECK(!check_output(directory.path(), true, "").empty());
    create_output(directory.path(), true);
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
    CHECK(has(check_output(directory.path(), false, other_steps), ("starting afresh; that record is kept as " + kept).c_str()));
    create_output(directory.path(), true);
    CHECK(fs::exists(directory.path() / "run.h5"));
    CHECK(!fs::exists(directory.path() / "trace.h5"));
    CHECK(!fs::exists(directory.path() / "run.h5.partial-host-1-0"));
    touch(directory.path() / "trace.h5");
    create_output(directory.path(), false);
    RunRecord next = record;
    next.command = "another";
    RecordWriter(directory.path()).write(next);
    CHECK(read_record(directory.path() / kept).command == record.command);
    CHECK(read_record(directory.path() / "run.h5").command == "another");
    CHECK(!fs::exists(directory.path() / "trace.h5"));
    CHECK(fs::exists(directory.path() / "trace-2026-01-31T12-00-00Z.h5"));
    create_output(directory.path(), false);  // of the same second
    CHECK(read_record(directory.path() / "run-2026-01-31T12-00-00Z-2.h5").command == "another");

    CHECK(has(refusal(directory.path(), "model:\n  num_layers: 5\n"), "another model"));
    fs::create_directories(directory.path() / "checkpoints" / "step-00000010");
    CHECK(has(refusal(directory.path(), other_steps), "step-00000010"));
}

TEST_CASE("a damaged record, a file in the way, a path below a file") {
    const TemporaryDirectory directory;
    touch(directory.path() / "run.h5");
    CHECK(has(refusal(directory.path(), ""), "cannot be read"));
    CHECK(has(refusal(directory.path() / "run.h5", ""), "not a directory"));
    CHECK(has(refusal(directory.path() / "run.h5" / "below", ""), "not a directory"));
}
