// The trace file: columns in the order of the blocks.
#include "record/trace.hpp"

#include "base/error.hpp"
#include "record/hdf5_image.hpp"
#include "record/replace_file.hpp"
#include "record/report.hpp"
#include "unit/record_sample.hpp"

#include <doctest.h>
#include <cmath>

using namespace quadrille;

TEST_CASE("a trace is read back as columns") {
    const TemporaryDirectory directory;
    write_trace(
        directory.path(),
        {{"compute", "tp"}, {"matmul", "all_reduce"}, {{7, 0, {{0, 0, 0.5, 1}, {1, 1, 1, 2}}}, {7, 1, {{0, 0, 0.25, 1}}}},
         {{0, 0, 0, 0.5, {5, 4, 3, 2, 1}}, {1, 1, 1, 1, {0, 0, 6, 0, 0}}}});
    const auto path = directory.path() / "trace.h5";
    const Hdf5ImageReader file(path.string(), read_file(path));
    CHECK(file.text_attribute("/", "schema") == "quadrille-trace-1");
    CHECK(file.strings("/trace/queues") == std::vector<std::string>{"compute", "tp"});
    CHECK(file.strings("/trace/ops") == std::vector<std::string>{"matmul", "all_reduce"});
    CHECK(file.ints("/trace/step") == std::vector<std::int64_t>{7, 7, 7});
    CHECK(file.ints("/trace/rank") == std::vector<std::int64_t>{0, 0, 1});
    CHECK(file.ints("/trace/queue") == std::vector<std::int64_t>{0, 1, 0});
    CHECK(file.ints("/trace/op") == std::vector<std::int64_t>{0, 1, 0});
    CHECK(file.doubles("/trace/begin") == std::vector<double>{0.5, 1, 0.25});
    CHECK(file.doubles("/trace/end") == std::vector<double>{1, 2, 1});
    CHECK(file.ints("/memory/rank") == std::vector<std::int64_t>{0, 1});
    CHECK(file.ints("/memory/tier") == std::vector<std::int64_t>{0, 1});
    CHECK(file.ints("/memory/op") == std::vector<std::int64_t>{0, 1});
    CHECK(file.doubles("/memory/time") == std::vector<double>{0.5, 1});
    CHECK(file.ints("/memory/bytes") == std::vector<std::int64_t>{5, 4, 3, 2, 1, 0, 0, 6, 0, 0});
    CHECK(file.strings("/memory/books").size() == 5);
}

TEST_CASE("an empty trace is a whole file") {
    const TemporaryDirectory directory;
    write_trace(directory.path(), {});
    const auto path = directory.path() / "trace.h5";
    CHECK(Hdf5ImageReader(path.string(), read_file(path)).doubles("/trace/begin").empty());
    CHECK(inspect_record(path).find("without events") != std::string::npos);
}

TEST_CASE("events at no moment are refused, which cannot be put in order") {
    for (const double moment : {std::nan(""), HUGE_VAL}) {
        const TemporaryDirectory directory;
        write_trace(directory.path(), {{"compute"}, {"matmul"}, {{7, 0, {{0, 0, 0.5, 1}, {0, 0, moment, moment}}}}});
        CHECK_THROWS_WITH_AS(inspect_record(directory.path() / "trace.h5"), doctest::Contains("an event that begins or ends at no moment"), Error);
    }
}

TEST_CASE("inspect sums a trace up by queue and by kind of op") {
    const TemporaryDirectory directory;
    const std::vector<std::string> ops = {"F layers.0 matmul@0", "F layers.1 matmul@1", "S head redistribute"};
    write_trace(directory.path(), {{"compute", "tp"}, ops, {{7, 0, {{0, 0, 1, 2}, {0, 1, 2, 3}, {1, 2, 3, 5}}},
                                                            {7, 1, {{0, 0, 1, 2}, {0, 1, 2, 5}, {1, 2, 4, 5}}}}});
    const std::string text = inspect_record(directory.path() / "trace.h5");
    MESSAGE(text);
    for (const char* part : {"trace of 1 step on 2 ranks: 6 events, 4.00 s a step", "  compute        2    3.00 s   75.0 %\n",
                             "  tp             1    1.50 s   37.5 %\n", "  F matmul              2    3.00 s   75.0 %\n",
                             "  S redistribute        1    1.50 s   37.5 %\n"})
        CHECK_MESSAGE(text.find(part) != std::string::npos, part);
}

TEST_CASE("events that overlap count once, and the kinds beyond the longest twelve stand in a row of their own") {
    const TemporaryDirectory directory;
    std::vector<std::string> ops;
    std::vector<TraceEvent> events = {{0, 0, 0, 10}, {1, 0, 0, 8}, {1, 0, 4, 9}, {1, 0, 5, 6}};  // three moves within 9 of 10 seconds
    for (int kind = 0; kind < 15; ++kind) ops.push_back(fmt::format("F layers.0 kind{}@0", kind));
    for (int kind = 1; kind < 15; ++kind) events.push_back({0, kind, 0, 8 - 0.5 * kind});
    write_trace(directory.path(), {{"compute", "pp"}, ops, {{3, 0, events}}});
    const std::string text = inspect_record(directory.path() / "trace.h5");
    INFO(text);
    CHECK(text.find("  pp             3    9.00 s    90.0 %\n") != std::string::npos);
    CHECK(text.find("  F kind0            4    10.0 s   100.0 %\n") != std::string::npos);
    CHECK(text.find("  the other 3        3    2.00 s    20.0 %\n") != std::string::npos);
    CHECK(text.find("F kind12") == std::string::npos);
}

TEST_CASE("a trace whose rows name nothing is damaged") {
    const TemporaryDirectory directory;
    write_trace(directory.path(), {{"compute"}, {"matmul"}, {{1, 0, {{0, 5, 0, 1}}}}});
    try {
        inspect_record(directory.path() / "trace.h5");
        FAIL("it was read");
    } catch (const Error& error) {
        CHECK(error.exit() == Exit::io_failed);
    }
}
