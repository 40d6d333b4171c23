// Paths of the input file: relative to its folder or the working directory, with globs. Reads directories, opens no file.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace quadrille::input {

// What one path or glob stands for.
struct Matches {
    std::vector<std::string> files;  // absolute, sorted bytewise
    std::string problem;             // why there are none; empty if there are
};

// The regular files that `pattern` names, tried from each folder in turn until one has some. An existing file is taken
// literally, whatever its name. *, ? and [] match within a name, ** any number of folders (none included, symbolic links to folders
// not followed); names beginning with a dot are matched only by patterns that say so. With `extension` (".bin") the pattern may
// leave it out and the results do: prefixes of pairs of files.
Matches find_files(const std::string& pattern, const std::vector<std::filesystem::path>& folders, std::string_view extension = "");

bool is_glob(std::string_view pattern);

// "302 files of 1.50 MiB", or the one path itself. A prefix counts with its .bin; files that are not there are told of.
std::string files_text(const std::vector<std::string>& files);

}  // namespace quadrille::input
