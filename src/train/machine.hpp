// What this process can see of its machine's memory.
#pragma once
#include <cstdint>

namespace quadrille {

// Bytes: the smaller of what the system calls available and what the process's cgroup still allows; 0 if neither can be read.
std::int64_t memory_available();
// Bytes: the most memory this process has had resident.
std::int64_t process_peak();

}  // namespace quadrille
