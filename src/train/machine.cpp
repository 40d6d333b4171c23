#include "train/machine.hpp"

#include <sys/resource.h>

#include <fstream>
#include <string>

namespace quadrille {
namespace {

std::int64_t meminfo_available() {
    std::ifstream in("/proc/meminfo");
    std::string key, unit;
    for (std::int64_t kib = 0; in >> key >> kib; std::getline(in, unit))
        if (key == "MemAvailable:") return kib * 1024;
    return 0;
}

// A cgroup file's number; "max" and absent files are none.
std::int64_t cgroup_number(const std::string& path) {
    std::ifstream in(path);
    std::int64_t bytes = 0;
    return in >> bytes ? bytes : 0;
}

std::int64_t cgroup_left() {
    std::ifstream in("/proc/self/cgroup");
    for (std::string line; std::getline(in, line);) {
        if (line.rfind("0::", 0) != 0) continue;
        const std::string folder = "/sys/fs/cgroup" + line.substr(3);
        const std::int64_t limit = cgroup_number(folder + "/memory.max");
        if (limit > 0) return limit - cgroup_number(folder + "/memory.current");
    }
    return 0;
}

}  // namespace

std::int64_t memory_available() {
    const std::int64_t system = meminfo_available(), group = cgroup_left();
    return group > 0 && (system == 0 || group < system) ? group : system;
}

std::int64_t process_peak() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return std::int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace quadrille
