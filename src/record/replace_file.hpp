// Whole files or none: reading one at once and replacing one so that a reader, a crash or a full disk never meets half of it.
// Not collective. Knows nothing of what the bytes mean.
#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace quadrille {

// Temporary files are named FILE.partial-HOST-PID-N, in the file's own directory.
inline constexpr std::string_view partial_mark = ".partial-";

// Writes beside `file`, syncs, renames over it and syncs the directory. Throws Error{io_failed} naming file and reason; what
// `file` held before is then untouched and the temporary file is gone.
void replace_file(const std::filesystem::path& file, std::span<const std::byte> bytes);

// Return when what was written to an open file, or to a folder, is on the disk, where the file system can tell. Throw Error{io_failed} naming it and
// the reason.
void sync(int descriptor, const std::filesystem::path& name);
void sync_folder(const std::filesystem::path& folder);

// Throws Error{io_failed} naming file and reason.
std::vector<std::byte> read_file(const std::filesystem::path& file);

}  // namespace quadrille
