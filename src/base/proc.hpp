// The system's files of "key number ..." lines, such as /proc/self/status.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

namespace quadrille {

// The number that follows `key`, its colon included where the file has one; none where there is no such line or no such file.
std::optional<std::int64_t> number_after(const std::filesystem::path& file, std::string_view key);

}  // namespace quadrille
