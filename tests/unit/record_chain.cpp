// Which record a run writes that goes on from a checkpoint, and what it takes over of the former one.
#include "record/chain.hpp"

#include "record/record_reader.hpp"
#include "record/record_writer.hpp"
#include "unit/record_sample.hpp"

#include <doctest.h>
#include <fstream>

using namespace quadrille;
namespace fs = std::filesystem;

namespace {

// As a run that goes on begins: its grid, input and plan, and no steps.
constexpr std::size_t cells = RunRecord::categories.size();

RunRecord beginning() {
    RunRecord record = sample_record(0);
    record.evaluations.clear();
    record.command = "the later one";
    record.start_time = "2026-02-01T00:00:00Z";
    record.measured_peak.clear();
    record.wire_sent.clear();
    record.copies_moved.clear();
    return record;
}

}  // namespace

TEST_CASE("names: run.h5, run-2.h5 and so on; others are not of the chain") {
    const TemporaryDirectory directory;
    CHECK(newest_record(directory.path()) == directory.path() / "run.h5");
    for (const char* name : {"run.h5", "run-2.h5", "run-10.h5", "run-1.h5", "run-02.h5", "run-2026-01-31T12-00-00Z.h5", "run-3.h5.partial-a-1-0",
                             "run-.h5", "run-2.hdf5", "trace.h5"})
        std::ofstream(directory.path() / name) << "x";
    CHECK(record_numbers(directory.path()) == std::vector<int>{1, 2, 10});
    CHECK(newest_record(directory.path()) == directory.path() / "run-10.h5");
    CHECK(record_numbers(directory.path() / "absent").empty());
}

TEST_CASE("a checkpoint's seconds are the step's that it follows") {
    RunRecord record = sample_record(2);
    const double before = record.time_seconds[3 * cells + 10], wall = record.steps[1].seconds;
    record.add_to_last_step(10, {0.25, 0.5});
    CHECK(record.time_seconds[3 * cells + 10] == before + 0.5);  // step 2, rank 1
    CHECK(record.steps[1].seconds == wall + 0.25);
    CHECK(record.steps[0].seconds == wall);
    RunRecord none = sample_record(0);
    none.add_to_last_step(10, {1, 1});
    CHECK(none.time_seconds.empty());
}

TEST_CASE("on the same grid the record goes on: rows up to the step stay, later ones go") {
    const TemporaryDirectory directory;
    const RunRecord former = sample_record(5);
    RecordWriter(directory.path()).write(former);
    RunRecord record = beginning();
    const RecordPlace place = continue_record(record, directory.path(), 3, "ck/step-00000003");
    CHECK(place.name == "run.h5");
    CHECK(place.note == "record: run.h5 goes on after step 3; its rows of 2 later steps are dropped");
    REQUIRE(record.steps.size() == 3);
    CHECK(record.steps[2].loss == former.steps[2].loss);
    CHECK(record.time_seconds == std::vector<double>(former.time_seconds.begin(), former.time_seconds.begin() + std::ptrdiff_t{3 * 2 * cells}));
    CHECK(record.evaluations.size() == 1);  // after step 2
    CHECK(record.start_time == former.start_time);
    CHECK(record.command == "the later one");
    CHECK(record.measured_peak == former.measured_peak);
    CHECK(record.wire_sent == former.wire_sent);
    CHECK(record.continues.empty());
    record.check_shapes();

    RunRecord before_evaluation = beginning();
    continue_record(before_evaluation, directory.path(), 1, "");
    CHECK(before_evaluation.evaluations.empty());
    RunRecord from_the_start = beginning();  // of a checkpoint of step 0
    CHECK(continue_record(from_the_start, directory.path(), 0, "").name == "run.h5");
    CHECK(from_the_start.steps.empty());
}

TEST_CASE("on another grid, or where the record does not reach the step or is damaged, a new one continues it") {
    const TemporaryDirectory directory;
    RecordWriter(directory.path()).write(sample_record(5));
    RunRecord other = beginning();
    other.coordinates[1] = {1, 0, 0, 0};
    const RecordPlace second = continue_record(other, directory.path(), 4, "ck/step-00000004");
    CHECK(second.name == "run-2.h5");
    CHECK(second.note == "record: run.h5 is of another grid, so run-2.h5 continues it");
    CHECK(other.continues == "run.h5");
    CHECK(other.continues_after == 4);
    CHECK(other.steps.empty());
    other.add_step({5, 1.0}, std::vector<double>(2 * RunRecord::categories.size()), std::vector<double>(2 * other.move_cells()));
    RecordWriter(directory.path(), second.name).write(other);
    const RunRecord read = read_record(directory.path() / "run-2.h5");
    CHECK(read.continues == "run.h5");
    CHECK(read.continues_after == 4);

    RunRecord again = beginning();  // the second one's grid, once more
    again.coordinates = other.coordinates;
    CHECK(continue_record(again, directory.path(), 5, "").name == "run-2.h5");
    CHECK((again.continues == "run.h5" && again.continues_after == 4 && again.steps.size() == 1));
    RunRecord before = again;  // at the step where it began
    CHECK(continue_record(before, directory.path(), 4, "").name == "run-2.h5");
    CHECK(before.steps.empty());

    RunRecord gap = beginning();
    gap.coordinates = other.coordinates;
    const RecordPlace third = continue_record(gap, directory.path(), 9, "");
    CHECK(third.name == "run-3.h5");
    CHECK(third.note == "record: run-2.h5 does not tell of step 9, so run-3.h5 continues it");
    std::ofstream(directory.path() / "run-2.h5") << "damaged";
    RunRecord damaged = beginning();
    CHECK(continue_record(damaged, directory.path(), 5, "").name == "run-3.h5");
    CHECK(damaged.continues == "run-2.h5");
}

TEST_CASE("where there is no record, the checkpoint is what the new one continues") {
    const TemporaryDirectory directory;
    RunRecord record = beginning();
    CHECK(continue_record(record, directory.path(), 7, "elsewhere/step-00000007").name == "run.h5");
    CHECK((record.continues == "elsewhere/step-00000007" && record.continues_after == 7));
}
