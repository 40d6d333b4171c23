#include "record/output_directory.hpp"

#include "base/error.hpp"
#include "record/record_reader.hpp"
#include "record/replace_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <vector>

namespace quadrille {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& directory, const std::string& why) {
    throw Error(Exit::refused, fmt::format("output.directory: {} {}", directory.string(), why));
}

// The lines of a resolved input's section `model`. Both sides come from the same printer, so text is compared and not values.
std::string model_section(const std::string& yaml) {
    std::istringstream lines(yaml);
    std::string section;
    bool inside = false;
    for (std::string line; std::getline(lines, line);) {
        const bool is_key = !line.empty() && line[0] != ' ' && line[0] != '#';
        if (is_key) inside = line.starts_with("model:");
        if (inside) section += line + "\n";
    }
    return section;
}

// Why this run may not start afresh over `directory`; "" if it may.
std::string obstacle(const fs::path& directory, const std::string& config_yaml) {
    std::error_code ignored;
    if (!fs::exists(directory / "run.h5", ignored)) return "is not empty and holds no run record";
    for (const auto& entry : fs::directory_iterator(directory / "checkpoints", ignored))
        return fmt::format("holds a checkpoint, {}", entry.path().filename().string());
    try {
        const RunRecord former = read_record(directory / "run.h5");
        if (model_section(former.config_yaml) != model_section(config_yaml)) return "holds the record of another model";
    } catch (const Error& error) {
        return fmt::format("is not empty and its record cannot be read ({})", error.what());
    }
    return "";
}

// What tells a record that makes room from others: its run's start, "-2026-01-31T12-00-00Z", with a number where that is taken.
std::string former_mark(const fs::path& directory) {
    std::string time = read_record(directory / "run.h5").start_time;
    std::replace_if(time.begin(), time.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '-');
    std::string mark = "-" + time;
    std::error_code ignored;
    const auto taken = [&](const char* stem) { return fs::exists(directory / (stem + mark + ".h5"), ignored); };
    for (int number = 2; taken("run") || taken("trace"); ++number) mark = fmt::format("-{}-{}", time, number);
    return mark;
}

// The record gets its other name beside its own, which it loses when the new run's first write replaces it: at no moment is there none.
void keep_former(const fs::path& directory) {
    std::error_code reason;
    const std::string mark = former_mark(directory), name = "run" + mark + ".h5";
    fs::create_hard_link(directory / "run.h5", directory / name, reason);
    if (reason) fs::copy_file(directory / "run.h5", directory / name, reason);  // a file system without links
    if (!reason && fs::exists(directory / "trace.h5")) fs::rename(directory / "trace.h5", directory / ("trace" + mark + ".h5"), reason);
    if (reason) throw Error(Exit::io_failed, fmt::format("{}: run.h5 cannot be kept as {}: {}", directory.string(), name, reason.message()));
}

// The nearest ancestor that exists must be a directory that can be written, else creating fails later.
void check_creatable(const fs::path& directory) {
    std::error_code ignored;
    fs::path ancestor = fs::absolute(directory).lexically_normal();
    while (!fs::exists(ancestor, ignored) && ancestor != ancestor.root_path()) ancestor = ancestor.parent_path();
    if (!fs::is_directory(ancestor, ignored))
        refuse(directory, fmt::format("cannot be made: {} is not a directory", ancestor.string()));
    if (::access(ancestor.c_str(), W_OK | X_OK) != 0)
        refuse(directory, fmt::format("cannot be written: {}: {}", ancestor.string(), std::strerror(errno)));
}

bool is_leftover(const std::string& name) {
    return name == "trace.h5" ||
           (name.find(partial_mark) != std::string::npos && (name.starts_with("run.h5") || name.starts_with("trace.h5")));
}

}  // namespace

std::string check_output(const fs::path& directory, bool overwrite, const std::string& config_yaml) {
    check_creatable(directory);
    std::error_code reason;
    if (!fs::exists(directory, reason)) return "";
    const bool empty = fs::is_empty(directory, reason);
    if (reason) refuse(directory, fmt::format("cannot be read: {}", reason.message()));
    if (empty) return "";
    if (fs::is_directory(directory / "run.h5", reason)) refuse(directory, "holds a folder named run.h5, where the run record belongs");
    if (overwrite)
        return fmt::format("output.directory: {} is not empty; its run record is overwritten, as output.overwrite asks",
                           directory.string());
    const std::string why = obstacle(directory, config_yaml);
    if (!why.empty()) refuse(directory, why + "; choose another directory or set output.overwrite=true");
    return fmt::format("output.directory: {} holds a record of the same model and no checkpoint: starting afresh; that record is kept as run{}.h5",
                       directory.string(), former_mark(directory));
}

OutputLock::OutputLock(const fs::path& directory) : descriptor_(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (descriptor_ < 0 || flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
    close(descriptor_);
    refuse(directory, "is in use: another run is writing into it");
}

OutputLock::~OutputLock() {
    if (descriptor_ >= 0) close(descriptor_);
}

std::unique_ptr<OutputLock> create_output(const fs::path& directory, bool overwrite) {
    std::error_code reason;
    fs::create_directories(directory, reason);
    if (reason) refuse(directory, fmt::format("cannot be made: {}", reason.message()));
    auto lock = std::make_unique<OutputLock>(directory);
    if (!overwrite && fs::exists(directory / "run.h5", reason)) keep_former(directory);
    std::vector<fs::path> leftovers;
    for (const auto& entry : fs::directory_iterator(directory, reason))
        if (is_leftover(entry.path().filename().string())) leftovers.push_back(entry.path());
    for (const fs::path& leftover : leftovers)
        if (!reason) fs::remove(leftover, reason);
    if (reason) throw Error(Exit::io_failed, fmt::format("{}: cannot be cleared: {}", directory.string(), reason.message()));
    return lock;
}

}  // namespace quadrille
