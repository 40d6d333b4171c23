// Numbers as users write them: integers in float notation, bytes with KiB/MiB/GiB; and what is refused rather than guessed.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace quadrille::input {

// A number, or why the text is none ("a leading zero", …; ready to follow "found 'x', "). `problem` empty: value holds.
template <class T>
struct Parsed {
    T value{};
    std::string problem;
};

// An integer: digits with an optional sign, or a decimal with exponent whose value is whole (5e8, 1.5e3). Refused: leading
// zeros, 0x and 0o, digit separators, base 60, what 64 bits do not hold.
Parsed<std::int64_t> parse_integer(std::string_view text);

// The same with an optional unit KiB, MiB, GiB or TiB (powers of 1024); the product must be whole.
Parsed<std::int64_t> parse_bytes(std::string_view text);

// A finite decimal number. Refused: the same spellings, NaN, infinity, what a double does not hold.
Parsed<double> parse_number(std::string_view text);

// Text that parse_bytes reads back: 25MiB, or plain digits where no unit divides.
std::string bytes_text(std::int64_t bytes);

// The shortest text that parse_number reads back.
std::string number_text(double value);

}  // namespace quadrille::input
