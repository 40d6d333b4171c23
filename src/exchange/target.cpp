#include "exchange/target.hpp"

#include "base/error.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/steps.hpp"
#include "exchange/tensor_folder.hpp"
#include "record/replace_file.hpp"

namespace quadrille {
namespace {

namespace fs = std::filesystem;

bool made_by_export(const std::string& name) {
    const bool shard = name.starts_with("model-") && name.ends_with(".safetensors");
    return shard || name == whole_name || name == index_name || name == "config.json";
}

[[noreturn]] void refuse(const char* command, const fs::path& folder, const std::string& why) {
    throw Error(Exit::refused, fmt::format("{}: {} {}", command, folder.string(), why));
}

// Whether it is there. Throws Error{refused} where something else than a folder has the name.
bool is_there(const char* command, const fs::path& folder) {
    std::error_code reason;
    const fs::file_type type = fs::status(folder, reason).type();
    if (type == fs::file_type::not_found) return false;
    if (type == fs::file_type::none)
        throw Error(Exit::io_failed, fmt::format("{}: cannot be looked at: {}", folder.string(), reason.message()));
    if (type != fs::file_type::directory) refuse(command, folder, "is no folder, allowed: the name of one, or of nothing");
    return true;
}

std::vector<std::string> names_in(const fs::path& folder) {
    std::vector<std::string> names;
    std::error_code reason;
    for (fs::directory_iterator at(folder, reason), end; !reason && at != end; at.increment(reason)) names.push_back(at->path().filename().string());
    if (reason) throw Error(Exit::io_failed, fmt::format("{}: cannot list it: {}", folder.string(), reason.message()));
    return names;
}

}  // namespace

fs::path plain_name(const fs::path& folder) {
    std::error_code unknown;
    const fs::path inside = fs::absolute(folder / "file"), plain = fs::weakly_canonical(inside, unknown);
    return (unknown ? inside.lexically_normal() : plain).parent_path();
}

void require_export_target(const fs::path& folder, bool replace) {
    if (!is_there("export", folder)) return;
    std::error_code unknown;
    if (fs::equivalent(folder, fs::current_path(unknown), unknown))
        refuse("export", folder, "is the working directory, allowed: another folder, such as one in it");
    const std::vector<std::string> names = names_in(folder);
    if (!names.empty() && !replace) refuse("export", folder, "is not empty, allowed: a new folder, or --replace where it is a former export");
    for (const std::string& name : names)
        if (!made_by_export(name)) refuse("export", folder, fmt::format("holds {}, which no export has made and --replace would remove", name));
}

void require_import_target(const fs::path& directory, bool replace) {
    if (!is_there("import", directory)) return;
    const std::vector<fs::path> steps = steps_in(directory);
    if (steps.empty()) return;
    const std::string newest = steps[0].filename().string();
    if (step_of(steps[0]) > 0)
        refuse("import", directory, fmt::format("holds the checkpoint {} of a run, which a resume would take for the newest; allowed: a directory "
                                                "without", newest));
    if (!replace) refuse("import", directory, fmt::format("holds a checkpoint, {}, allowed: a directory without, or --replace over it", newest));
}

std::vector<std::string> remove_leftovers_of(const fs::path& folder) {
    return remove_leftovers(folder.parent_path(), folder.filename().string());
}

}  // namespace quadrille
