#include "config/numbers.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>

namespace quadrille::input {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// A decimal taken apart: ± digits · 10^exponent.
struct Decimal {
    bool negative = false;
    std::string digits;  // without leading zeros; empty: zero
    std::int64_t exponent = 0;
};

// Why a text that is no decimal looks like one of another job; empty if it looks like nothing.
std::string foreign_number(std::string_view text) {
    const std::string_view body = text.starts_with('-') || text.starts_with('+') ? text.substr(1) : text;
    if (body.empty() || !(is_digit(body[0]) || body[0] == '.')) return "";
    if (body.starts_with("0x") || body.starts_with("0X") || body.starts_with("0o") || body.starts_with("0b"))
        return "which is not decimal";
    if (body.find('_') != std::string_view::npos || body.find(',') != std::string_view::npos)
        return "which has digit separators; write the digits alone";
    if (body.find(':') != std::string_view::npos) return "which looks like a time; write one number";
    return "";
}

// Parses [+-] digits [. digits] [e [+-] digits].
Parsed<Decimal> parse_decimal(std::string_view text) {
    Parsed<Decimal> result;
    result.problem = foreign_number(text);
    if (!result.problem.empty()) return result;
    const auto fail = [&](std::string why) {
        result.problem = std::move(why);
        return result;
    };
    std::size_t i = 0;
    if (i < text.size() && (text[i] == '-' || text[i] == '+')) result.value.negative = text[i++] == '-';
    const std::size_t whole = i;
    std::string& digits = result.value.digits;
    for (; i < text.size() && is_digit(text[i]); ++i) digits += text[i];
    const std::size_t whole_digits = i - whole;
    if (i < text.size() && text[i] == '.') {
        for (++i; i < text.size() && is_digit(text[i]); ++i, --result.value.exponent) digits += text[i];
    }
    if (digits.empty()) return fail("which is not a number");
    if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
        std::size_t begin = ++i;
        if (i < text.size() && (text[i] == '-' || text[i] == '+')) ++i;
        if (i == text.size() || !is_digit(text[i])) return fail("which is not a number");
        begin = text[begin] == '+' ? i : begin;
        std::int64_t exponent = 0;
        const auto [end, error] = std::from_chars(text.data() + begin, text.data() + text.size(), exponent);
        if (error != std::errc() || end != text.data() + text.size() || exponent > 100000 || exponent < -100000)
            return fail("which is not a number");
        result.value.exponent += exponent;
        i = text.size();
    }
    if (i != text.size()) return fail("which is not a number");
    if (whole_digits > 1 && text[whole] == '0') return fail("which has a leading zero");
    digits.erase(0, digits.find_first_not_of('0'));
    while (!digits.empty() && digits.back() == '0') digits.pop_back(), ++result.value.exponent;
    return result;
}

// The exact value times `factor`, if it is whole and fits.
Parsed<std::int64_t> to_integer(const Decimal& decimal, std::int64_t factor) {
    constexpr auto most = static_cast<unsigned __int128>(std::numeric_limits<std::int64_t>::max());
    if (decimal.digits.empty()) return {};
    if (decimal.digits.size() > 19) return {.value = 0, .problem = "which 64 bits do not hold exactly"};
    unsigned __int128 value = 0;
    for (const char c : decimal.digits) value = value * 10 + static_cast<unsigned>(c - '0');
    value *= static_cast<std::uint64_t>(factor);  // below 10^19 · 2^40 < 2^104
    for (std::int64_t e = decimal.exponent; e > 0; --e) {
        value *= 10;
        if (value > most) return {.value = 0, .problem = "which is more than 64 bits hold"};
    }
    for (std::int64_t e = decimal.exponent; e < 0; ++e) {
        if (value % 10 != 0) return {.value = 0, .problem = "which is not whole"};
        value /= 10;
    }
    if (value > most) return {.value = 0, .problem = "which is more than 64 bits hold"};
    const auto magnitude = static_cast<std::int64_t>(value);
    return {.value = decimal.negative ? -magnitude : magnitude, .problem = ""};
}

// A unit that ends the text: its factor and length; none: 1 and 0; one that is refused: 0.
struct Unit {
    std::int64_t factor = 1;
    std::size_t length = 0;
};
Unit unit_of(std::string_view text) {
    const std::size_t last = text.find_last_of("0123456789.");
    if (last == std::string_view::npos) return {};
    std::size_t begin = last + 1;
    while (begin < text.size() && text[begin] == ' ') ++begin;
    const std::string_view unit = text.substr(begin);
    const std::size_t length = text.size() - last - 1;
    if (unit.empty()) return {1, length};
    if (unit == "KiB") return {std::int64_t{1} << 10, length};
    if (unit == "MiB") return {std::int64_t{1} << 20, length};
    if (unit == "GiB") return {std::int64_t{1} << 30, length};
    if (unit == "TiB") return {std::int64_t{1} << 40, length};
    return {0, length};
}

}  // namespace

Parsed<std::int64_t> parse_integer(std::string_view text) {
    const Parsed<Decimal> decimal = parse_decimal(text);
    if (!decimal.problem.empty()) {
        const Unit unit = unit_of(text);
        if (unit.factor > 1) return {.value = 0, .problem = "but this is not a number of bytes"};
        return {.value = 0, .problem = decimal.problem};
    }
    return to_integer(decimal.value, 1);
}

Parsed<std::int64_t> parse_bytes(std::string_view text) {
    if (std::string problem = foreign_number(text); !problem.empty()) return {.value = 0, .problem = std::move(problem)};
    const Unit unit = unit_of(text);
    if (unit.factor == 0) return {.value = 0, .problem = "whose unit is not known; the units are KiB, MiB, GiB and TiB"};
    const Parsed<Decimal> decimal = parse_decimal(text.substr(0, text.size() - unit.length));
    if (!decimal.problem.empty()) return {.value = 0, .problem = decimal.problem};
    return to_integer(decimal.value, unit.factor);
}

Parsed<double> parse_number(std::string_view text) {
    const std::string_view body = text.starts_with('-') || text.starts_with('+') ? text.substr(1) : text;
    for (const char* word : {".inf", ".Inf", ".INF", "inf", "Inf", "Infinity", ".nan", ".NaN", ".NAN", "nan", "NaN"})
        if (body == word) return {.value = 0, .problem = "which is not finite"};
    const Parsed<Decimal> decimal = parse_decimal(text);
    if (!decimal.problem.empty()) return {.value = 0, .problem = decimal.problem};
    double value = 0;
    const std::string_view unsigned_or_minus = text.starts_with('+') ? text.substr(1) : text;
    const auto [end, error] = std::from_chars(unsigned_or_minus.data(), unsigned_or_minus.data() + unsigned_or_minus.size(), value);
    if (error == std::errc::result_out_of_range)
        return {.value = 0, .problem = "which a 64-bit floating-point number does not hold"};
    if (error != std::errc() || !std::isfinite(value)) return {.value = 0, .problem = "which is not a number"};
    return {.value = value == 0 ? 0.0 : value, .problem = ""};
}

std::string bytes_text(std::int64_t bytes) {
    constexpr const char* units[] = {"", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    while (unit < 4 && bytes != 0 && bytes % 1024 == 0) bytes /= 1024, ++unit;
    return fmt::format("{}{}", bytes, units[unit]);
}

std::string number_text(double value) { return fmt::format("{}", value); }

}  // namespace quadrille::input
