// JSON as the files of Hugging Face's models have it, read strictly: one document, no key twice in an object. Knows no key.
#pragma once
#include <nlohmann/json.hpp>

#include <cstddef>
#include <filesystem>
#include <span>

namespace quadrille {

// Throws Damaged naming `file` and the reason. The text may end in blanks.
nlohmann::json parse_json(std::span<const std::byte> text, const std::filesystem::path& file);

// The text of a file of at most `most` bytes, as JSON. Throws Damaged, and Error{io_failed} where it cannot be read.
nlohmann::json read_json(const std::filesystem::path& file, std::int64_t most);

}  // namespace quadrille
