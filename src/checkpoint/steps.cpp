#include "checkpoint/steps.hpp"

#include "base/error.hpp"
#include "base/host_name.hpp"
#include "checkpoint/checkpoint.hpp"
#include "record/replace_file.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <chrono>

namespace quadrille {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view step_prefix = "step-";
constexpr std::string_view former_mark = ".former-";  // of a folder that stands aside until another has its name

[[noreturn]] void fail(const fs::path& path, const std::string& doing, const std::error_code& reason) {
    throw Error(Exit::io_failed, fmt::format("{}: cannot {}: {}", path.string(), doing, reason.message()));
}

// The folder's lock: a descriptor, or -1 where another has it. `locks`: whether the file system has any.
int locked(const fs::path& folder, bool& locks) {
    const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    locks = true;
    if (descriptor < 0 || ::flock(descriptor, LOCK_EX | LOCK_NB) == 0) return descriptor;
    locks = errno == EWOULDBLOCK;
    if (!locks) return descriptor;
    ::close(descriptor);
    return -1;
}

// Both names change hands at once, where the system can.
bool exchanged(const fs::path& a, const fs::path& b) {
#if defined(__linux__) && defined(SYS_renameat2)
    constexpr unsigned exchange = 2;  // RENAME_EXCHANGE
    return ::syscall(SYS_renameat2, AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), exchange) == 0;
#else
    static_cast<void>(a), static_cast<void>(b);
    return false;
#endif
}

// What is in a folder; nothing where there is none.
std::vector<fs::path> entries(const fs::path& folder) {
    std::vector<fs::path> found;
    std::error_code reason;
    for (fs::directory_iterator at(folder, reason), end; !reason && at != end; at.increment(reason)) found.push_back(at->path());
    if (reason && reason != std::errc::no_such_file_or_directory && reason != std::errc::not_a_directory) fail(folder, "list it", reason);
    return found;
}

// The names that this process gives to what has not the name of `step`: a process of the same id, in another container, may have left some.
fs::path temporary_name(const fs::path& step, int number, std::string_view mark = partial_mark) {
    return fmt::format("{}{}{}-{}-{}", step.string(), mark, host_name(), ::getpid(), number);
}

// These directories, the innermost last, as far as nothing is in them.
void remove_empty(const std::vector<fs::path>& directories) {
    std::error_code in_use;
    for (auto at = directories.rbegin(); at != directories.rend(); ++at) fs::remove(*at, in_use);
}

// Out of its name, so that no half of a checkpoint ever has one. Returns the new one.
fs::path set_aside(const fs::path& folder, std::string_view mark = partial_mark) {
    std::error_code reason;
    int number = 0;
    while (fs::exists(temporary_name(folder, number, mark), reason)) ++number;
    const fs::path aside = temporary_name(folder, number, mark);
    fs::rename(folder, aside, reason);
    if (reason) fail(folder, "rename", reason);
    return aside;
}

// What a temporary folder's name tells.
struct Temporary {
    std::string of;       // the name it was made for
    std::string host;
    long process = 0;     // 0: it is not one
    bool former = false;  // it had that name
};

Temporary temporary(const std::string& name) {
    Temporary t;
    for (const std::string_view mark : {partial_mark, former_mark}) {
        const std::size_t begin = name.find(mark), number = name.rfind('-');
        if (begin == std::string::npos || number < begin + mark.size()) continue;
        const std::string maker = name.substr(begin + mark.size(), number - begin - mark.size());
        const std::size_t dash = maker.rfind('-');
        if (dash == std::string::npos) continue;
        t.of = name.substr(0, begin);
        t.host = maker.substr(0, dash);
        std::from_chars(maker.data() + dash + 1, maker.data() + maker.size(), t.process);
        t.former = mark == former_mark;
    }
    return t;
}

// What becomes of one that a dead save has left, in a sentence.
std::string clear_away(const fs::path& folder, const Temporary& t) {
    std::error_code reason;
    const fs::path own = folder.parent_path() / t.of;
    if (t.former && !fs::exists(own, reason)) {
        fs::rename(folder, own, reason);
        if (reason) return fmt::format("{}: a former {} that a dead save put aside cannot be put back: {}", folder.string(), t.of, reason.message());
        return fmt::format("{}: put back, as what was to replace it never was whole", own.string());
    }
    fs::remove_all(folder, reason);
    if (reason) return fmt::format("{}: what a dead save has left cannot be removed: {}", folder.string(), reason.message());
    return fmt::format("{}: what a dead save has left is removed", folder.string());
}

// Whether nothing in the folder, nor itself, was written in the last hour: no save that lives is so long without a write. Also false where that
// cannot be seen.
bool long_untouched(const fs::path& folder) {
    const auto before = fs::file_time_type::clock::now() - std::chrono::hours(1);
    std::error_code reason;
    const auto old = [&](const fs::path& path) { return fs::last_write_time(path, reason) < before && !reason; };
    if (!old(folder)) return false;
    for (fs::directory_iterator at(folder, reason), end; !reason && at != end; at.increment(reason))
        if (!old(at->path())) return false;
    return !reason;
}

}  // namespace

std::string step_name(std::int64_t step) { return fmt::format("{}{:08}", step_prefix, step); }

std::int64_t step_of(const fs::path& folder) {
    const fs::path clean = folder.lexically_normal();
    const std::string name = clean.has_filename() ? clean.filename().string() : clean.parent_path().filename().string();
    if (!name.starts_with(step_prefix)) return -1;
    std::int64_t step = -1;
    const char* const end = name.data() + name.size();
    const auto [stop, failure] = std::from_chars(name.data() + step_prefix.size(), end, step);
    return failure == std::errc() && stop == end && step_name(step) == name ? step : -1;
}

std::vector<fs::path> steps_in(const fs::path& directory) {
    std::vector<fs::path> steps;
    for (const fs::path& path : entries(directory))
        if (step_of(path) >= 0) steps.push_back(path);
    std::sort(steps.begin(), steps.end(), [](const fs::path& a, const fs::path& b) { return step_of(a) > step_of(b); });
    return steps;
}

std::string no_checkpoint_in(const fs::path& path) {
    const fs::path beneath = path / "checkpoints";  // of a run whose output.directory was named
    std::error_code unreadable;
    const bool there = fs::is_directory(beneath, unreadable) && !steps_in(beneath).empty();
    return fmt::format("{} holds no checkpoint: no checkpoint.h5, no folder step-*{}", path.string(),
                       there ? fmt::format("; {} holds some", beneath.string()) : "");
}

std::vector<fs::path> make_directories(const fs::path& directory) {
    std::error_code reason;
    std::vector<fs::path> made;
    if (fs::is_directory(directory, reason)) return made;
    const fs::path parent = fs::absolute(directory / "file").lexically_normal().parent_path().parent_path();
    if (parent != directory) made = make_directories(parent);
    if (fs::create_directory(directory, reason)) made.push_back(directory);
    else if (!reason && !fs::is_directory(directory, reason)) reason = std::make_error_code(std::errc::not_a_directory);
    if (reason) {
        remove_empty(made);
        fail(directory, "make it", reason);
    }
    if (::access(parent.c_str(), R_OK) == 0) sync_folder(parent);  // one that may not be read is written to all the same
    return made;
}

PartialFolder::PartialFolder(const fs::path& directory, std::int64_t step) : PartialFolder(directory / step_name(step)) {}

PartialFolder::PartialFolder(const fs::path& folder) : directory_(folder.parent_path()), final_(folder) {
    made_ = make_directories(directory_);
    std::error_code reason;
    fs::path path;
    for (int number = 0; path.empty() || (!reason && !fs::create_directory(path, reason)); ++number) path = temporary_name(final_, number);
    if (reason) {
        remove_empty(made_);
        fail(path, "make it", reason);
    }
    path_ = path;
    bool locks = false;
    lock_ = locked(path_, locks);
}

PartialFolder::~PartialFolder() {
    std::error_code ignored;
    if (!path_.empty()) {
        fs::remove_all(path_, ignored);
        remove_empty(made_);
    }
    if (lock_ >= 0) ::close(lock_);
}

void PartialFolder::keep() {
    std::error_code reason;
    sync_folder(path_);
    const bool there = fs::exists(final_, reason);
    if (there && exchanged(path_, final_)) {
        sync_folder(directory_);
        fs::remove_all(path_, reason);  // now the former one
        path_.clear();
        return;
    }
    if (there) return replace();
    fs::rename(path_, final_, reason);
    if (reason) fail(path_, "rename", reason);
    path_.clear();
    sync_folder(directory_);
}

// Where two names cannot change hands at once: the former one stands aside meanwhile, and remove_leftovers knows its name if that is the end.
void PartialFolder::replace() {
    std::error_code reason, ignored;
    const fs::path former = set_aside(final_, former_mark);
    fs::rename(path_, final_, reason);
    if (reason) {
        fs::rename(former, final_, ignored);
        fail(path_, "rename", reason);
    }
    path_.clear();
    sync_folder(directory_);
    fs::remove_all(former, ignored);
}

std::vector<fs::path> retire_old(const fs::path& directory, std::int64_t step, std::int64_t keep, std::vector<std::string>& failed) {
    std::vector<fs::path> retired;
    if (keep == 0) return retired;
    std::int64_t seen = 0;
    try {
        for (const fs::path& folder : steps_in(directory))
            if (step_of(folder) <= step && ++seen > keep) retired.push_back(set_aside(folder));
    } catch (const Error& e) {
        failed.emplace_back(e.what());
    }
    return retired;
}

std::vector<std::string> remove_leftovers(const fs::path& directory, const std::string& of) {
    std::vector<std::string> notes;
    for (const fs::path& folder : entries(directory)) {
        const Temporary t = temporary(folder.filename().string());
        if (t.process <= 0 || (of.empty() ? step_of(t.of) < 0 : t.of != of)) continue;
        bool locks = false;
        const int lock = locked(folder, locks);
        const bool here = t.host == host_name(), gone = ::kill(static_cast<pid_t>(t.process), 0) != 0 && errno == ESRCH;
        const bool unlocked = locks && !t.former;  // nobody locks what stands aside
        if (lock >= 0 && ((here && (unlocked || gone)) || long_untouched(folder))) {
            notes.push_back(clear_away(folder, t));
        } else {
            notes.push_back(fmt::format("{}: a save of process {} on {} is under way, or died there; it stays", folder.string(), t.process, t.host));
        }
        if (lock >= 0) ::close(lock);
    }
    return notes;
}

}  // namespace quadrille
