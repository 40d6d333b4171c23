// Data files and the output directory. A plan is made without the data: there, patterns that match nothing stay as they are.
#include "config/resolve.hpp"

#include "base/error.hpp"
#include "config/paths.hpp"
#include "config/utf8.hpp"

#include <algorithm>
#include <set>

namespace quadrille::input {

namespace fs = std::filesystem;

namespace {

struct Search {
    std::vector<fs::path> folders;
    std::string extension;  // of the files that a prefix stands for
    bool planning = false;
};

// A path of the one file that a user may name for the pair.
std::string data_file(std::string path, const std::string& extension) {
    if (extension == ".bin" && path.ends_with(".idx")) path.replace(path.size() - 4, 4, ".bin");
    return path;
}

std::vector<std::string> find_all(const std::vector<std::string>& patterns, const char* key, const Search& search,
                                  const Settings& settings, Problems& problems, std::vector<std::string>& warnings) {
    std::vector<std::string> files;
    std::set<std::string> seen;
    for (const std::string& pattern : patterns) {
        const Matches matches = find_files(data_file(pattern, search.extension), search.folders, search.extension);
        if (matches.problem.empty()) {
            // A glob adds each file once; a path written twice is meant twice.
            for (const std::string& file : matches.files)
                if (seen.insert(file).second || !is_glob(pattern)) files.push_back(file);
        } else if (search.planning) {
            files.push_back((search.folders[0] / pattern).lexically_normal().string());
            if (settings.written(key)) warnings.push_back(fmt::format("{}: found '{}', {}", key, pattern, matches.problem));
        } else {
            const bool variable = pattern.starts_with('~') || pattern.find('$') != std::string::npos;
            problems.add(
                settings.place(key), key,
                fmt::format("found '{}', {}{}", pattern, matches.problem, variable ? "; ~ and $NAME are not expanded" : ""));
        }
    }
    return files;
}

void expect_plain(const char* key, const std::string& written, const Settings& settings, Problems& problems) {
    if (!written.starts_with('~') && written.find('$') == std::string::npos) return;
    problems.add(settings.place(key), key,
                 fmt::format("found '{}', allowed: a path as it is; ~ and $NAME are not expanded here, but the shell does so in an override",
                             written));
}

void resolve_checkpoint(Config& config, const Settings& settings, Problems& problems) {
    CheckpointConfig& c = config.checkpoint;
    expect_plain("checkpoint.directory", c.directory, settings, problems);
    expect_plain("checkpoint.resume", c.resume, settings, problems);
    if (c.directory.empty()) c.directory = (fs::path(config.output.directory) / "checkpoints").string();
}

void resolve_output(Config& config, const Settings& settings, const Origin& origin, Problems& problems) {
    constexpr const char* key = "output.directory";
    const std::string written = settings.given(key) ? config.output.directory : "runs/NAME";
    expect_plain(key, written, settings, problems);
    fs::path path;
    for (const fs::path& name : fs::path(written)) path /= name == "NAME" ? fs::path(origin.stem) : name;
    config.output.directory = path.string();
    if (!is_utf8(config.output.directory))
        problems.add(settings.place(key), key, "found an input file whose name is not UTF-8, allowed: a name that is, or a directory of its own");
}

// The nvme tier's directory; a plan may be made elsewhere than where it is.
void check_nvme_path(const OffloadConfig& o, const Settings& settings, const Job& job, Problems& problems, std::vector<std::string>& warnings) {
    constexpr const char* key = "offload.nvme_path";
    std::error_code error;
    if (!o.uses(OffloadTo::nvme) || o.nvme_path.empty() || fs::is_directory(o.nvme_path, error)) return;
    const std::string what = fmt::format("found '{}', {}", o.nvme_path,
                                         fs::exists(o.nvme_path, error) ? "which is not a directory" : "but there is no such directory");
    if (job.planning) warnings.push_back(fmt::format("{}: {}", key, what));
    else problems.add(settings.place(key), key, what + ", allowed: the directory of a local disk");
}

}  // namespace

void resolve_paths(Config& config, const Settings& settings, const Origin& origin, const Job& job, Problems& problems,
                   std::vector<std::string>& warnings) {
    resolve_output(config, settings, origin, problems);
    check_nvme_path(config.offload, settings, job, problems, warnings);
    resolve_checkpoint(config, settings, problems);
    DataConfig& d = config.data;
    if (d.format == DataFormat::synthetic) {
        d.train.clear();
        d.valid.clear();
        return;
    }
    Search search;
    search.folders = {origin.folder};
    if (const fs::path here = fs::current_path(); here != origin.folder) search.folders.push_back(here);
    search.extension = d.format == DataFormat::megatron ? ".bin" : "";
    search.planning = job.planning;
    if (!settings.written("data.train")) d.train = {"src/**/*.cpp"};
    d.train = find_all(d.train, "data.train", search, settings, problems, warnings);
    d.valid = find_all(d.valid, "data.valid", search, settings, problems, warnings);
}

}  // namespace quadrille::input
