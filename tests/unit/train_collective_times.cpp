// The table of measured times that comm.algorithm: auto goes by: what bench writes is read, and nothing else is believed.
#include <doctest.h>

#include "base/error.hpp"
#include "train/collective_times.hpp"

using namespace quadrille;

TEST_CASE("rows of bench collectives --json") {
    const auto times = parse_collective_times(R"([
{"name": "all_reduce", "algorithm": "ring", "ranks": 2, "bytes": 65536, "seconds": 2.5e-05, "rate": 2.6, "unit": "GB/s"},
{"name": "all_reduce", "algorithm": "shared", "ranks": 2, "bytes": 65536, "seconds": 1.25e-05, "rate": 5.2, "unit": "GB/s"},
{"name": "all_reduce", "algorithm": "native", "ranks": 2, "bytes": 65536, "seconds": 1e-05, "rate": 6.5, "unit": "GB/s"},
{"name": "send", "algorithm": "ring", "ranks": 2, "bytes": 65536, "seconds": 1e-05, "rate": 6.5, "unit": "GB/s"},
{"name": "gemm", "precision": "fp32", "ranks": 1, "shape": "8 x 8", "seconds": 1e-05, "rate": 6.5, "unit": "GFLOP/s"}
])",
                                              "times.json", "");
    REQUIRE(times.size() == 2);
    CHECK(times[0].algorithm == Algorithm::ring);
    CHECK(times[1].algorithm == Algorithm::shared);
    CHECK(times[1].kind == MoveKind::all_reduce);
    CHECK(times[1].ranks == 2);
    CHECK(times[1].bytes == 65536);
    CHECK(times[1].seconds == 1.25e-5);
}

TEST_CASE("what is no such file is refused by name") {
    for (const char* text : {"[]", "{}", "3", "[1, 2]", "[{\"name\": \"all_reduce\"}]", "[{\"name\": \"all_reduce\", \"algorithm\": \"ring\"}]",
                             "[{name: all_reduce, algorithm: ring, ranks: 2, bytes: 8, seconds: inf}]"}) {
        try {
            parse_collective_times(text, "times.json", "");
            FAIL("taken: ", text);
        } catch (const Error& e) {
            CHECK(e.exit() == Exit::refused);
            CHECK(std::string(e.what()).starts_with("times.json"));
        }
    }
}

TEST_CASE("rows that were measured on another machine do not count") {
    const std::string ours = R"({"name": "all_reduce", "algorithm": "ring", "machine": "2 x Ours", "ranks": 2, "bytes": 64, "seconds": 1e-05})";
    const std::string theirs = R"({"name": "all_reduce", "algorithm": "ring", "machine": "64 x Theirs", "ranks": 2, "bytes": 64, "seconds": 1e-05})";
    CHECK(parse_collective_times("[" + ours + "," + theirs + "]", "times.json", "2 x Ours").size() == 1);
    CHECK(parse_collective_times("[" + ours + "," + theirs + "]", "times.json", "").size() == 2);
    try {
        parse_collective_times("[" + theirs + "]", "times.json", "2 x Ours");
        FAIL("taken");
    } catch (const Error& e) {
        CHECK(std::string(e.what()) == "times.json: measured on 64 x Theirs, and this is 2 x Ours");
    }
}
