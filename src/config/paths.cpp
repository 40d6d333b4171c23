#include "config/paths.hpp"

#include "base/format.hpp"
#include "config/utf8.hpp"

#include <fmt/core.h>
#include <fnmatch.h>

#include <algorithm>

namespace quadrille::input {

namespace fs = std::filesystem;

namespace {

bool name_matches(const std::string& pattern, const std::string& name) {
    return fnmatch(pattern.c_str(), name.c_str(), FNM_PERIOD) == 0;
}

bool is_folder(const fs::path& path) {
    std::error_code error;
    return fs::is_directory(path, error);
}
bool is_file(const fs::path& path) {
    std::error_code error;
    return fs::is_regular_file(path, error);
}

std::vector<fs::path> entries_of(const fs::path& folder) {
    std::vector<fs::path> entries;
    std::error_code error;
    for (fs::directory_iterator i(folder, error), end; !error && i != end; i.increment(error)) entries.push_back(i->path());
    return entries;
}

// Appends the files under `folder` that match the names from `at` on.
void match(const fs::path& folder, const std::vector<std::string>& names, std::size_t at, std::vector<std::string>& files) {
    const std::string& name = names[at];
    const bool last = at + 1 == names.size();
    if (name == "**") {
        if (last) {
            match(folder, {"**", "*"}, 0, files);
            return;
        }
        match(folder, names, at + 1, files);
        for (const fs::path& entry : entries_of(folder))
            if (is_folder(entry) && !fs::is_symlink(entry) && !entry.filename().string().starts_with('.'))
                match(entry, names, at, files);
        return;
    }
    const auto take = [&](const fs::path& path) {
        if (!last && is_folder(path)) match(path, names, at + 1, files);
        if (last && is_file(path)) files.push_back(path.lexically_normal().string());
    };
    if (!is_glob(name)) return take(folder / name);
    for (const fs::path& entry : entries_of(folder))
        if (name_matches(name, entry.filename().string())) take(entry);
}

std::vector<std::string> expand(const fs::path& pattern) {
    std::vector<std::string> names, files;
    for (const fs::path& name : pattern.relative_path())
        if (!name.empty() && !(name == "**" && !names.empty() && names.back() == "**")) names.push_back(name.string());
    if (!names.empty()) match(pattern.root_path(), names, 0, files);
    std::sort(files.begin(), files.end());
    files.erase(std::unique(files.begin(), files.end()), files.end());
    return files;
}

std::vector<std::string> files_at(const fs::path& path, std::string_view extension) {
    if (is_file(path)) return {path.lexically_normal().string()};
    if (!extension.empty() && is_file(path.string() + std::string(extension)))
        return {path.lexically_normal().string() + std::string(extension)};
    if (!is_glob(path.string())) return {};
    const bool whole = path.string().ends_with(extension);
    return expand(whole ? path : fs::path(path.string() + std::string(extension)));
}

}  // namespace

bool is_glob(std::string_view pattern) { return pattern.find_first_of("*?[") != std::string_view::npos; }

std::string files_text(const std::vector<std::string>& files) {
    if (files.empty()) return "[]";
    if (files.size() == 1) return files[0];
    std::uintmax_t bytes = 0;
    std::int64_t missing = 0;
    for (const std::string& file : files) {
        std::error_code error;
        std::uintmax_t size = fs::file_size(file, error);
        if (error) size = fs::file_size(file + ".bin", error);
        if (error) ++missing;
        else bytes += size;
    }
    return fmt::format("{} files of {}{}", files.size(), format_bytes(static_cast<std::int64_t>(bytes)),
                       missing > 0 ? fmt::format(" ({} not found)", missing) : "");
}

Matches find_files(const std::string& pattern, const std::vector<fs::path>& folders, std::string_view extension) {
    Matches result;
    for (const fs::path& folder : folders) {
        const fs::path path = folder / pattern;  // an absolute pattern stays as it is
        result.files = files_at(path, extension);
        if (!result.files.empty()) break;
        if (is_folder(path)) {
            const std::string name = pattern.substr(0, pattern.find_last_not_of('/') + 1);
            result.problem = fmt::format("which is a folder, allowed: files; {}/**/* names those inside", name);
            return result;
        }
    }
    for (std::string& file : result.files) {
        if (!is_utf8(file)) result.problem = "which matches a name that is not UTF-8";
        if (!extension.empty() && file.ends_with(extension)) file.resize(file.size() - extension.size());
    }
    if (result.files.empty())
        result.problem = fmt::format(
            "{} in {}", is_glob(pattern) ? "which matches no file" : "but there is no such file",
            folders.size() == 2 ? fmt::format("{} or {}", folders[0].string(), folders[1].string()) : folders[0].string());
    return result;
}

}  // namespace quadrille::input
