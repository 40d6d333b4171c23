#include "train/machine.hpp"

#include "base/proc.hpp"

#include <fmt/core.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <latch>
#include <thread>
#include <vector>

namespace quadrille {
namespace {

namespace fs = std::filesystem;

// A file's one number; none where it is absent or says "max".
std::optional<std::int64_t> number_in(const fs::path& file) {
    std::ifstream in(file);
    std::int64_t n = 0;
    return in >> n ? std::optional(n) : std::nullopt;
}

// The files of one version's memory controller.
struct Controller {
    const char *limit, *usage, *inactive, *active;
};
constexpr Controller version_1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "total_active_file"};
constexpr Controller version_2{"memory.max", "memory.current", "inactive_file", "active_file"};

std::optional<std::int64_t> left_in(const fs::path& group, const Controller& c) {
    const auto limit = number_in(group / c.limit);
    if (!limit || *limit >= std::int64_t{1} << 60) return {};  // version 1 writes "none" as a huge number
    const std::int64_t cache = number_after(group / "memory.stat", c.inactive).value_or(0) +
                               number_after(group / "memory.stat", c.active).value_or(0);
    const std::int64_t used = number_in(group / c.usage).value_or(0) - cache;
    return std::max<std::int64_t>(0, *limit - std::max<std::int64_t>(0, used));
}

// A line "7:cpu,memory:/path" (version 1) or "0::/path" (version 2): the controller's folder under the root, and the path.
struct Membership {
    const Controller* controller = nullptr;
    fs::path top, path;
};

Membership membership_of(const std::string& line, const fs::path& root) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) return {};
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const fs::path path = fs::path(line.substr(second + 1)).relative_path();
    if (controllers == ",,") return {&version_2, root, path};
    if (controllers.find(",memory,") != std::string::npos) return {&version_1, root / "memory", path};
    return {};
}

}  // namespace

std::optional<std::int64_t> cgroup_left(const fs::path& membership, const fs::path& root) {
    std::optional<std::int64_t> least;
    std::ifstream in(membership);
    for (std::string line; std::getline(in, line);) {
        const Membership m = membership_of(line, root);
        if (!m.controller) continue;
        for (fs::path path = m.path;; path = path.parent_path()) {  // a limit of a group around it binds as well
            const auto left = left_in(m.top / path, *m.controller);
            if (left && (!least || *left < *least)) least = left;
            if (path.empty()) break;
        }
    }
    return least;
}

std::int64_t memory_available() {
    const std::int64_t system = number_after("/proc/meminfo", "MemAvailable:").value_or(0) * 1024;
    const auto group = cgroup_left("/proc/self/cgroup", "/sys/fs/cgroup");
    return group && (system == 0 || *group < system) ? *group : system;
}

// glibc reserves so much of the address space for a thread's first allocation. Where that leaves too little, libraries end the process in
// ways of their own.
constexpr std::int64_t heap_bytes = std::int64_t{64} << 20;

std::optional<ProcessLimit> process_limit(int threads) {
    rlimit stack{};
    getrlimit(RLIMIT_STACK, &stack);
    const std::int64_t stack_bytes = stack.rlim_cur == RLIM_INFINITY ? std::int64_t{2} << 20 : static_cast<std::int64_t>(stack.rlim_cur);
    std::optional<ProcessLimit> least;
    const auto consider = [&](auto resource, const char* used, std::int64_t per_thread, const char* name) {
        rlimit limit{};
        if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
        const std::int64_t taken = number_after("/proc/self/status", used).value_or(0) * 1024 + threads * per_thread;
        const std::int64_t left = static_cast<std::int64_t>(limit.rlim_cur) - taken;
        if (!least || left < least->left) least = {left, name};
    };
    consider(RLIMIT_AS, "VmSize:", stack_bytes + heap_bytes, "ulimit -v");
    consider(RLIMIT_DATA, "VmData:", stack_bytes, "ulimit -d");
    return least;
}

std::string machine_name() {
    std::ifstream in("/proc/cpuinfo");
    std::string line, model = "an unknown processor";
    while (std::getline(in, line)) {
        const std::size_t colon = line.find(": ");
        if (!line.starts_with("model name") || colon == std::string::npos) continue;
        model = line.substr(colon + 2);
        break;
    }
    return fmt::format("{} x {}", sysconf(_SC_NPROCESSORS_ONLN), model);
}

void require_threads(int threads) {
    std::latch all_asked(1);
    std::vector<std::thread> started;
    try {
        for (int t = 0; t < threads; ++t) started.emplace_back([&all_asked] { all_asked.wait(); });
    } catch (...) {
        all_asked.count_down();
        for (std::thread& t : started) t.join();
        throw;
    }
    all_asked.count_down();
    for (std::thread& t : started) t.join();
}

std::int64_t process_peak() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return std::int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace quadrille
