// The ledgers and the summary of a run, and inspect.
#include "record/report.hpp"

#include "base/error.hpp"
#include "record/record_writer.hpp"
#include "unit/record_sample.hpp"

#include <doctest.h>
#include <algorithm>

using namespace quadrille;

namespace {
bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }
}  // namespace

TEST_CASE("the memory ledger shows the fullest rank and whether prediction held") {
    RunRecord record = sample_record();
    for (auto* peaks : {&record.predicted_peak, &record.measured_peak}) {
        peaks->assign(2 * RunRecord::peak_cells, 0);
        (*peaks)[0] = 1024;
        (*peaks)[RunRecord::peak_cells] = 2048;      // rank 1, device, weights
        (*peaks)[RunRecord::peak_cells + 3] = 6144;  // rank 1, device, activations
    }
    const std::string text = memory_ledger(record);
    CHECK(has(text, "device's high-water mark, rank 1"));
    CHECK(has(text, "  weights        2.00 KiB   2.00 KiB   25.0 %\n"));
    CHECK(has(text, "  peak           8.00 KiB   8.00 KiB\n"));
    CHECK(!has(text, "nvme"));
    CHECK(has(text, "predicted = measured on 2 of 2 ranks"));
    CHECK(has(text, "largest process, by the operating system: 2.00 MiB\n    reserved at the start: 768 KiB, 50.0 % of it in huge pages\n"
                    "    mapped of other ranks' memory: 256 KiB\n    beside that: 1.00 MiB ("));
    record.process_peak[0] = 4 << 20;  // rank 0, whose system does not tell all
    CHECK(has(memory_ledger(record), "reserved at the start: 384 KiB\n    beside that: 3.62 MiB ("));
    record.process_peak[0] = 300 << 10;  // less than was reserved: not all of it was touched, or the system counts otherwise
    record.process_peak[1] = 0;
    CHECK(has(memory_ledger(record), "reserved at the start: 384 KiB\n"));
    CHECK(!has(memory_ledger(record), "beside that"));
    record.huge_pages.clear();
    CHECK(!has(memory_ledger(record), "reserved"));
    record.measured_peak[0] += 1;
    CHECK(has(memory_ledger(record), "equal on 1 of 2 ranks only"));
    record.measured_peak.clear();
    CHECK(has(memory_ledger(record), "not measured"));
}

TEST_CASE("the time ledger sums to the wall clock") {
    RunRecord record = sample_record(0);
    std::vector<double> seconds(2 * RunRecord::categories.size());
    seconds[0] = 3;                                 // rank 0 compute
    seconds[3] = 1;                                 // rank 0 exposed_tp
    seconds[RunRecord::categories.size()] = 2;      // rank 1 compute
    seconds[RunRecord::categories.size() + 3] = 2;  // rank 1 exposed_tp
    record.add_step({1, 5, 1, 1, 1e-3, 1, 100, 4, 0}, seconds, std::vector<double>(2 * record.move_cells()));
    const std::string text = time_ledger(record);
    CHECK(has(text, "  compute      2.50 s    62.5 %   3.00 s         0\n"));
    CHECK(has(text, "  exposed_tp   1.50 s    37.5 %   2.00 s         1\n"));
    CHECK(has(text, "  wall clock   4.00 s   100.0 %\n"));
    CHECK(!has(text, "pipeline_idle"));
}

TEST_CASE("the speed says what of its seconds were saves") {
    RunRecord record = sample_record(0);
    const std::vector<double> seconds(2 * RunRecord::categories.size()), moves(2 * record.move_cells());
    record.add_step({1, 5, 1, 1, 1e-3, 1, 100, 2, 0}, seconds, moves);
    CHECK(has(run_summary(record), "  speed      50 tokens/s, 2.00 s a step"));
    CHECK(!has(run_summary(record), "of saves among it"));
    const auto& names = RunRecord::categories;
    record.add_to_last_step(static_cast<std::size_t>(std::find(names.begin(), names.end(), "checkpoint") - names.begin()), {3, 4});
    CHECK(has(run_summary(record), "  speed      20 tokens/s, 5.00 s a step"));
    CHECK(has(run_summary(record), "; 3.00 s of saves among it, which the console's speed leaves out\n"));
}

TEST_CASE("inspect summarises a record, found by its file or its directory") {
    const TemporaryDirectory directory;
    RunRecord record = sample_record();
    record.exit_code = 4;
    RecordWriter(directory.path()).write(record);
    const std::string text = inspect_record(directory.path());
    CHECK(text == inspect_record(directory.path() / "run.h5"));
    for (const char* part :
         {"quadrille-run-1", "4 layers, hidden 60", "dp 1, tp 2, pp 1, sp 1", "3 of 3 recorded, not complete, exit code 4",
          "5.250000 at step 1, 4.750000 at step 3", "5.125000 after step 2", "512 tokens/s", "dp+sp"})
        CHECK_MESSAGE(has(text, part), part);
    MESSAGE(text);
}

TEST_CASE("inspect of nothing is refused; an empty run has a summary") {
    const TemporaryDirectory directory;
    try {
        inspect_record(directory.path());
        FAIL("it was not refused");
    } catch (const Error& error) {
        CHECK(error.exit() == Exit::refused);
    }
    const std::string text = run_summary(sample_record(0));  // a run that was killed before its first log interval
    CHECK(has(text, "steps      0 of 3 recorded, not complete, running, or killed before it could say"));
    CHECK(has(text, "time: no step was recorded (the record is written at log intervals"));
    CHECK(has(run_summary(RunRecord{}), "running, or killed"));
}
