// Numbers for people.
#include "base/format.hpp"

#include <doctest.h>
#include <limits>

using namespace quadrille;

TEST_CASE("bytes") {
    CHECK(format_bytes(0) == "0 B");
    CHECK(format_bytes(1023) == "1023 B");
    CHECK(format_bytes(1024) == "1.00 KiB");
    CHECK(format_bytes(10 * 1024 + 512) == "10.5 KiB");
    CHECK(format_bytes((std::int64_t{1} << 20) - 1) == "1.00 MiB");
    CHECK(format_bytes(std::int64_t{405} << 30) == "405 GiB");
    CHECK(format_bytes(-2048) == "-2.00 KiB");
    CHECK(format_bytes(std::numeric_limits<std::int64_t>::max()) == "8.00 EiB");
    CHECK(format_bytes(std::numeric_limits<std::int64_t>::min()) == "-8.00 EiB");
}

TEST_CASE("seconds") {
    CHECK(format_seconds(0) == "0 s");
    CHECK(format_seconds(12.34e-6) == "12.3 us");
    CHECK(format_seconds(3.4e-3) == "3.40 ms");
    CHECK(format_seconds(0.99951) == "1.00 s");
    CHECK(format_seconds(59.96) == "1 min 00 s");
    CHECK(format_seconds(187) == "3 min 07 s");
    CHECK(format_seconds(3599.6) == "1 h 00 min");
    CHECK(format_seconds(7500) == "2 h 05 min");
    CHECK(format_seconds(3 * 86400 + 4 * 3600) == "3 d 04 h");
    CHECK(format_seconds(std::numeric_limits<double>::infinity()) == "n/a");
    CHECK(format_seconds(-1) == "n/a");
}

TEST_CASE("counts and shares") {
    CHECK(format_count(950) == "950");
    CHECK(format_count(0.5) == "0.5");
    CHECK(format_count(12345) == "12.3 k");
    CHECK(format_count(999999) == "1.00 M");
    CHECK(format_count(1.24e20) == "124 E");
    CHECK(format_count(1.24e24) == "1.24e+24");
    CHECK(format_count(12345, "flop/s") == "12.3 kflop/s");
    CHECK(format_count(950, "flop/s") == "950 flop/s");
    CHECK(format_number_of(1, "rank") == "1 rank");
    CHECK(format_number_of(0, "rank") == "0 ranks");
    CHECK(format_percent(1, 8) == "12.5 %");
    CHECK(format_percent(1, 0) == "n/a");
}

TEST_CASE("a table aligns its columns") {
    CHECK(format_table({{"name", "x"}, {"a", "100"}, {"longer", ""}}) == "  name       x\n  a        100\n  longer\n");
}
