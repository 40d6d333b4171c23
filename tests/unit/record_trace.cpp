// The trace file: columns in the order of the blocks.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "record/trace.hpp"

#include "record/hdf5_image.hpp"
#include "record/replace_file.hpp"
#include "unit/record_sample.hpp"

#include <doctest.h>

using namespace quadrille;

TEST_CASE("a trace is read back as columns") {
    const TemporaryDirectory directory;
    write_trace(
        directory.path(),
        {{"compute", "tp"}, {"matmul", "all_reduce"}, {{7, 0, {{0, 0, 0.5, 1}, {1, 1, 1, 2}}}, {7, 1, {{0, 0, 0.25, 1}}}}});
    const auto path = directory.path() / "trace.h5";
    const Hdf5ImageReader file(path.string(), read_file(path));
    CHECK(file.strings("/trace/queues") == std::vector<std::string>{"compute", "tp"});
    CHECK(file.strings("/trace/ops") == std::vector<std::string>{"matmul", "all_reduce"});
    CHECK(file.ints("/trace/step") == std::vector<std::int64_t>{7, 7, 7});
    CHECK(file.ints("/trace/rank") == std::vector<std::int64_t>{0, 0, 1});
    CHECK(file.ints("/trace/queue") == std::vector<std::int64_t>{0, 1, 0});
    CHECK(file.ints("/trace/op") == std::vector<std::int64_t>{0, 1, 0});
    CHECK(file.doubles("/trace/begin") == std::vector<double>{0.5, 1, 0.25});
    CHECK(file.doubles("/trace/end") == std::vector<double>{1, 2, 1});
}

TEST_CASE("an empty trace is a whole file") {
    const TemporaryDirectory directory;
    write_trace(directory.path(), {});
    const auto path = directory.path() / "trace.h5";
    CHECK(Hdf5ImageReader(path.string(), read_file(path)).doubles("/trace/begin").empty());
}
