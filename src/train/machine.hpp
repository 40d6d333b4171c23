// What this process can see of its machine's memory.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace quadrille {

// Bytes: the smaller of what the system calls available and what the process's cgroups still allow; 0 if neither can be read.
std::int64_t memory_available();

// Bytes that the tightest cgroup of the process, or of those around it, still allows (versions 1 and 2); page cache counts as free, as the
// system would drop it. None where no limit is set. `membership` is read as /proc/self/cgroup, `root` as /sys/fs/cgroup.
std::optional<std::int64_t> cgroup_left(const std::filesystem::path& membership, const std::filesystem::path& root);

// Bytes that one process may still take, and what says so.
struct ProcessLimit {
    std::int64_t left = 0;
    std::string name;   // "ulimit -v"
};
// By the process's own limits, less what `threads` threads still to be started will take; the tighter of the two. None where there is none.
std::optional<ProcessLimit> process_limit(int threads);

// The processor's name and how many of them are online: what two machines of a kind have alike.
std::string machine_name();

// Throws std::system_error unless the process may have so many threads more. To be asked before OpenMP starts its own, which ends the process
// where it cannot.
void require_threads(int threads);

// Bytes: the most memory this process has had resident.
std::int64_t process_peak();

}  // namespace quadrille
