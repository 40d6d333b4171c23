// Numbers for people: bytes, seconds and counts with their units. Pure functions.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace quadrille {

std::string format_bytes(std::int64_t bytes);  // 0 B, 512 B, 1.5 KiB, 3.20 GiB
std::string format_seconds(double seconds);    // 12 us, 3.4 ms, 5.2 s, 3 min 07 s, 2 h 05 min, 3 d 04 h; n/a unless finite
// 950, 12.3 k, 4.56 M, 1.24e+24; with a unit 950 flop/s, 12.3 kflop/s
std::string format_count(double count, const std::string& unit = "");
std::string format_number_of(std::int64_t count, const std::string& noun);  // 1 rank, 4 ranks
std::string format_percent(double part, double whole);                      // 12.3 %; n/a where whole is 0

// Rows of cells as aligned columns, the first row being the heads: first column to the left, the others to the right.
std::string format_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace quadrille
