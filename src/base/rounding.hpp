// Division and multiples that round up. Neither argument is negative, and no sum overflows.
#pragma once
#include <cstdint>

namespace quadrille {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t aligned_up(std::int64_t n, std::int64_t alignment) { return ceil_div(n, alignment) * alignment; }

}  // namespace quadrille
