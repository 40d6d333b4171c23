#include "config/numbers.hpp"

#include <doctest.h>

#include <limits>

using namespace quadrille::input;

TEST_CASE("integers: digits, float notation of whole values, signs") {
    const auto good = [](const char* text, std::int64_t value) {
        INFO(text);
        const auto parsed = parse_integer(text);
        CHECK(parsed.problem == "");
        CHECK(parsed.value == value);
    };
    good("0", 0);
    good("-0", 0);
    good("42", 42);
    good("+7", 7);
    good("-1", -1);
    good("5e8", 500000000);
    good("5E8", 500000000);
    good("5e+8", 500000000);
    good("1.5e3", 1500);
    good("2.0", 2);
    good("100e-2", 1);
    good("0.5e1", 5);
    good("0e5", 0);
    good("9223372036854775807", std::numeric_limits<std::int64_t>::max());
    good("1000000000000000000", 1000000000000000000);
}

TEST_CASE("integers: what is refused rather than guessed") {
    for (const char* text : {"",
                             "-",
                             "+",
                             "abc",
                             "1.5",
                             "1e-1",
                             "007",
                             "00",
                             "-01",
                             "0x10",
                             "0o17",
                             "0b1",
                             "1_000",
                             "1,000",
                             "01:30:00",
                             "1:30",
                             "9223372036854775808",
                             "1e19",
                             "1e99999",
                             "1e999999999999",
                             "1e",
                             "1e+",
                             "1e--5",
                             "1e+-5",
                             "--1",
                             "1 2",
                             "1e5 ",
                             ".",
                             "nan",
                             ".inf",
                             "12abc",
                             "1.2.3",
                             "25MiB",
                             "0.00000000001",
                             "99999999999999999999999"}) {
        INFO(text);
        CHECK(parse_integer(text).problem != "");
    }
    CHECK(parse_integer("007").problem == "which has a leading zero");
    CHECK(parse_integer("0x10").problem == "which is not decimal");
    CHECK(parse_integer("1_000").problem == "which has digit separators; write the digits alone");
    CHECK(parse_integer("01:30:00").problem == "which looks like a time; write one number");
    CHECK(parse_integer("2.5").problem == "which is not whole");
    CHECK(parse_integer("32KiB").problem == "but this is not a number of bytes");
}

TEST_CASE("bytes: units of 1024, whole products") {
    CHECK(parse_bytes("25MiB").value == 25 << 20);
    CHECK(parse_bytes("25 MiB").value == 25 << 20);
    CHECK(parse_bytes("1KiB").value == 1024);
    CHECK(parse_bytes("1.5KiB").value == 1536);
    CHECK(parse_bytes("2GiB").value == std::int64_t{2} << 30);
    CHECK(parse_bytes("3TiB").value == std::int64_t{3} << 40);
    CHECK(parse_bytes("5e8").value == 500000000);
    CHECK(parse_bytes("1000").value == 1000);
    for (const char* text :
         {"25MB", "25mib", "25M", "0.3KiB", "0xFF", "0x10KiB", "1_000KiB", "KiB", "", "1e30GiB", "0100KiB", "auto"}) {
        INFO(text);
        CHECK(parse_bytes(text).problem != "");
    }
    for (const std::int64_t bytes : {std::int64_t{1}, std::int64_t{1023}, std::int64_t{1024}, std::int64_t{25} << 20,
                                     std::int64_t{5} << 40, std::int64_t{1} << 62})
        CHECK(parse_bytes(bytes_text(bytes)).value == bytes);
    CHECK(bytes_text(25 << 20) == "25MiB");
    CHECK(bytes_text(1000) == "1000");
}

TEST_CASE("numbers: every spelling of a learning rate, and nothing that is not finite") {
    const auto good = [](const char* text, double value) {
        INFO(text);
        const auto parsed = parse_number(text);
        CHECK(parsed.problem == "");
        CHECK(parsed.value == value);
    };
    good("1e-4", 1e-4);
    good("6.0e-5", 6e-5);
    good("3e-4", 3e-4);
    good("0.0006", 6e-4);
    good("+1", 1);
    good("-2.5", -2.5);
    good(".5", 0.5);
    good("5.", 5);
    good("1E6", 1e6);
    good("1e+6", 1e6);
    good("0.1", 0.1);
    good("1e30", 1e30);
    for (const char* text : {"nan", "NaN", ".nan", ".inf", "-.inf", "inf", "Infinity", "1e400", "1e-400", "00.5", "0x1p3", "1_0.5",
                             "1,5", "three", "", "1e", "1:2", "--1", "+-1"}) {
        INFO(text);
        CHECK(parse_number(text).problem != "");
    }
    for (const double x : {1e-8, 3e-4, 0.1, 1.0 / 3, 65536.0, 1e38, 5e-324, 0.95})
        if (x > 1e-300) CHECK(parse_number(number_text(x)).value == x);
}
