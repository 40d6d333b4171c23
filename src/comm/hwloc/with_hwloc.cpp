// Built where hwloc is found.
#include "comm/cpu_place.hpp"

#include <hwloc.h>

namespace quadrille {
namespace {

// Owns hwloc's picture of the machine.
class Machine {
  public:
    Machine() {
        if (hwloc_topology_init(&topology_) != 0) topology_ = nullptr;
        loaded_ = topology_ != nullptr && hwloc_topology_load(topology_) == 0;
        mine_ = hwloc_bitmap_alloc();
        known_ = loaded_ && mine_ != nullptr && hwloc_get_cpubind(topology_, mine_, HWLOC_CPUBIND_PROCESS) == 0;
    }
    ~Machine() {
        hwloc_bitmap_free(mine_);
        if (topology_ != nullptr) hwloc_topology_destroy(topology_);
    }
    Machine(const Machine&) = delete;
    Machine& operator=(const Machine&) = delete;

    CpuPlace place() const {
        CpuPlace found;
        if (!known_) return found;
        if (const hwloc_obj_t socket = hwloc_get_next_obj_covering_cpuset_by_type(topology_, mine_, HWLOC_OBJ_PACKAGE, nullptr))
            if (hwloc_bitmap_isincluded(mine_, socket->cpuset)) found.socket = static_cast<int>(socket->logical_index);
        const hwloc_nodeset_t domains = hwloc_bitmap_alloc();
        if (domains != nullptr && hwloc_cpuset_to_nodeset(topology_, mine_, domains) == 0 && hwloc_bitmap_weight(domains) == 1)
            found.numa = hwloc_bitmap_first(domains);
        hwloc_bitmap_free(domains);
        return found;
    }

  private:
    hwloc_topology_t topology_ = nullptr;
    hwloc_cpuset_t mine_ = nullptr;
    bool loaded_ = false, known_ = false;
};

}  // namespace

CpuPlace cpu_place() { return Machine().place(); }

}  // namespace quadrille
