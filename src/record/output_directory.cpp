#include "record/output_directory.hpp"

#include "base/error.hpp"
#include "record/chain.hpp"
#include "record/record_reader.hpp"
#include "record/replace_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <vector>

namespace quadrille {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& directory, const std::string& why, const char* key = "output.directory") {
    throw Error(Exit::refused, fmt::format("{}: {} {}", key, directory.string(), why));
}

// Why this run may not go on, or start afresh, over what is in `directory`; "" if it may.
std::string obstacle(const fs::path& directory, const OutputUse& use) {
    std::error_code ignored;
    const fs::path newest = newest_record(directory);
    const std::string name = newest.filename().string();
    if (!fs::exists(newest, ignored)) return use.resumes ? "" : "is not empty and holds no run record";
    if (use.resumes && !use.own)
        return fmt::format("holds {}, the record of another run than the checkpoint's; with checkpoint.resume=auto its own is gone on with", name);
    try {
        if (!use.same_model(read_record(newest).config_yaml)) return fmt::format("holds the record of another model, {}", name);
    } catch (const Error& error) {
        if (use.resumes) return "";  // the checkpoint is what it goes on from; a record of its own follows the damaged one
        return fmt::format("is not empty and its record cannot be read ({})", error.what());
    }
    return "";
}

// When the first of the records began that can be read; the newest can.
std::string first_start(const fs::path& directory) {
    for (const int number : record_numbers(directory)) {
        try {
            return read_record(directory / record_name(number)).start_time;
        } catch (const Error&) {  // damaged: kept as it is
        }
    }
    return read_record(newest_record(directory)).start_time;
}

// What tells records that make room from others: the first one's start, "-2026-01-31T12-00-00Z", with a number where that is taken.
std::string former_mark(const fs::path& directory) {
    std::string time = first_start(directory);
    std::replace_if(time.begin(), time.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '-');
    std::string mark = "-" + time;
    std::error_code ignored;
    const auto taken = [&](const char* stem) { return fs::exists(directory / (stem + mark + ".h5"), ignored); };
    for (int number = 2; taken("run") || taken("trace"); ++number) mark = fmt::format("-{}-{}", time, number);
    return mark;
}

// run.h5 gets its other name beside its own, which it loses when the new run's first write replaces it: at no moment is there none. Those that
// continue it are renamed after it: run-TIME.h5, run-TIME.2.h5.
void keep_former(const fs::path& directory) {
    std::error_code reason;
    const std::string mark = former_mark(directory);
    for (const int number : record_numbers(directory)) {
        const fs::path from = directory / record_name(number);
        const fs::path to = directory / (number == 1 ? "run" + mark + ".h5" : fmt::format("run{}.{}.h5", mark, number));
        if (number > 1) fs::rename(from, to, reason);
        else fs::create_hard_link(from, to, reason);
        if (reason && number == 1) fs::copy_file(from, to, reason);  // a file system without links
        if (reason) throw Error(Exit::io_failed, fmt::format("{} cannot be kept as {}: {}", from.string(), to.filename().string(), reason.message()));
    }
    if (!fs::exists(directory / "trace.h5")) return;
    fs::rename(directory / "trace.h5", directory / ("trace" + mark + ".h5"), reason);
    if (reason) throw Error(Exit::io_failed, fmt::format("{}: trace.h5 cannot be kept: {}", directory.string(), reason.message()));
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

// A temporary file of a run that was killed.
bool is_partial(const std::string& name) {
    const bool ours = name.starts_with("run.h5") || name.starts_with("run-") || name.starts_with("trace.h5");
    return ours && name.find(".h5" + std::string(partial_mark)) != std::string::npos;
}

bool is_leftover(const std::string& name, const OutputUse& use) { return is_partial(name) || (name == "trace.h5" && !use.goes_on()); }

// Whether it holds at most what a run leaves that was killed before its record stood: temporary files and empty folders.
bool holds_nothing(const fs::path& directory, std::error_code& reason) {
    for (fs::directory_iterator at(directory, reason), end; !reason && at != end; at.increment(reason)) {
        std::error_code unreadable;
        if (!is_partial(at->path().filename().string()) && !(at->is_directory(unreadable) && fs::is_empty(at->path(), unreadable))) return false;
    }
    return true;
}

}  // namespace

std::string check_output(const fs::path& directory, const OutputUse& use) {
    check_creatable(directory);
    std::error_code reason;
    if (!fs::exists(directory, reason)) return "";
    const bool empty = holds_nothing(directory, reason);
    if (reason) refuse(directory, fmt::format("cannot be read: {}", reason.message()));
    const fs::path newest = newest_record(directory);
    if (fs::is_directory(newest, reason))
        refuse(directory, fmt::format("holds a folder named {}, where the run record belongs", newest.filename().string()));
    if (empty) return "";
    const std::string why = obstacle(directory, use);
    if (use.overwrite && !use.goes_on())
        return fmt::format("output.directory: {} is not empty; its run record is overwritten, as output.overwrite asks", directory.string());
    if (!why.empty()) refuse(directory, why + "; choose another directory or set output.overwrite=true");
    if (use.resumes) return "";
    return fmt::format("output.directory: {} holds a record of the same model and no checkpoint: starting afresh; that record is kept as run{}.h5",
                       directory.string(), former_mark(directory));
}

OutputLock::OutputLock(const fs::path& directory, const char* key)
    : descriptor_(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (descriptor_ < 0 || flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
    close(descriptor_);
    refuse(directory, "is in use: another run is writing into it", key);
}

OutputLock::~OutputLock() {
    if (descriptor_ >= 0) close(descriptor_);
}

std::unique_ptr<OutputLock> hold_output(const fs::path& directory) {
    std::error_code reason;
    fs::create_directories(directory, reason);
    if (reason) refuse(directory, fmt::format("cannot be made: {}", reason.message()));
    return std::make_unique<OutputLock>(directory);
}

void clear_output(const fs::path& directory, const OutputUse& use) {
    std::error_code reason;
    const std::vector<int> records = record_numbers(directory);
    if (!use.goes_on() && !use.overwrite && !records.empty()) keep_former(directory);
    std::vector<fs::path> leftovers;
    for (const auto& entry : fs::directory_iterator(directory, reason))
        if (is_leftover(entry.path().filename().string(), use)) leftovers.push_back(entry.path());
    if (!use.goes_on())
        for (const int number : records)
            if (number > 1) leftovers.push_back(directory / record_name(number));
    for (const fs::path& leftover : leftovers)
        if (!reason) fs::remove(leftover, reason);
    if (reason) throw Error(Exit::io_failed, fmt::format("{}: cannot be cleared: {}", directory.string(), reason.message()));
}

}  // namespace quadrille
