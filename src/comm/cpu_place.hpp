// On which socket and NUMA domain this process runs: what hwloc tells of its CPUs. Two ways to build it, see CMakeLists.txt.
#pragma once

namespace quadrille {

struct CpuPlace {
    int socket = -1, numa = -1;  // numbers on this node; -1: the process may run on several, or nobody can tell
};

// Some tens of milliseconds.
CpuPlace cpu_place();

}  // namespace quadrille
