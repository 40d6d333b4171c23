// Built where hwloc is not found.
#include "comm/cpu_place.hpp"

namespace quadrille {

CpuPlace cpu_place() { return {}; }

}  // namespace quadrille
