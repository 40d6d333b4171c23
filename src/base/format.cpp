#include "base/format.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cmath>

namespace quadrille {
namespace {

// Three significant digits of a number between 1 and 1024.
std::string three_digits(double x) { return fmt::format("{:.{}f}", x, x < 9.995 ? 2 : x < 99.95 ? 1 : 0); }

}  // namespace

std::string format_bytes(std::int64_t bytes) {
    static constexpr std::array units = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes > -1024 && bytes < 1024) return fmt::format("{} B", bytes);
    double x = std::abs(static_cast<double>(bytes)) / 1024;
    std::size_t u = 0;
    while (x >= 1023.5 && u + 1 < units.size()) {
        x /= 1024;
        ++u;
    }
    return fmt::format("{}{} {}", bytes < 0 ? "-" : "", three_digits(x), units[u]);
}

std::string format_seconds(double seconds) {
    if (!std::isfinite(seconds) || seconds < 0) return "n/a";
    if (seconds == 0) return "0 s";
    if (seconds < 0.9995e-3) return three_digits(seconds * 1e6) + " us";
    if (seconds < 0.9995) return three_digits(seconds * 1e3) + " ms";
    if (seconds < 59.95) return three_digits(seconds) + " s";
    const double whole = std::round(seconds);
    if (whole < 3600) return fmt::format("{:.0f} min {:02.0f} s", std::floor(whole / 60), std::fmod(whole, 60));
    const double minutes = std::floor(whole / 60);
    if (minutes < 24 * 60) return fmt::format("{:.0f} h {:02.0f} min", std::floor(minutes / 60), std::fmod(minutes, 60));
    const double hours = std::floor(minutes / 60);
    return fmt::format("{:.0f} d {:02.0f} h", std::floor(hours / 24), std::fmod(hours, 24));
}

std::string format_count(double count, const std::string& unit) {
    static constexpr std::array prefixes = {"k", "M", "G", "T", "P", "E"};
    if (!std::isfinite(count)) return "n/a";
    const std::string space = unit.empty() ? "" : " ";
    if (std::abs(count) < 999.5)
        return (count == std::round(count) ? fmt::format("{:.0f}", count) : fmt::format("{:.3g}", count)) + space + unit;
    double x = std::abs(count) / 1000;
    std::size_t p = 0;
    while (x >= 999.5 && p + 1 < prefixes.size()) {
        x /= 1000;
        ++p;
    }
    if (x >= 999.5) return fmt::format("{:.2e}{}{}", count, space, unit);
    return fmt::format("{}{} {}{}", count < 0 ? "-" : "", three_digits(x), prefixes[p], unit);
}

std::string format_number_of(std::int64_t count, const std::string& noun) {
    return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string format_percent(double part, double whole) {
    const double percent = 100 * part / whole;
    return std::isfinite(percent) ? fmt::format("{:.1f} %", percent) : "n/a";
}

std::string format_table(const std::vector<std::vector<std::string>>& rows) {
    std::vector<std::size_t> width;
    for (const auto& row : rows) {
        width.resize(std::max(width.size(), row.size()));
        for (std::size_t c = 0; c < row.size(); ++c) width[c] = std::max(width[c], row[c].size());
    }
    std::string text;
    for (const auto& row : rows) {
        std::string line = " ";
        for (std::size_t c = 0; c < row.size(); ++c)
            line += c == 0 ? fmt::format(" {:<{}}", row[c], width[c]) : fmt::format("   {:>{}}", row[c], width[c]);
        text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    return text;
}

}  // namespace quadrille
