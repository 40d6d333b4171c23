// Where the ranks of a job stand, and how fast they reach each other: measured in some tens of milliseconds, for whoever has a choice to make.
#pragma once
#include "comm/world.hpp"
#include "grid/topology.hpp"

namespace quadrille {

// Nodes by MPI, sockets and NUMA domains by hwloc. Of each link that two ranks have, one pair plays ping-pong while the others sleep: latency by the
// best round trip of 8 bytes, bandwidth by the best of 1 MiB: what a busy machine adds is no property of a link. `pretend_nodes`: as Engine's; 0:
// none. Collective over all ranks, before an engine's messages; what it returns is rank 0's, elsewhere without places.
Topology probe(const World&, int pretend_nodes);

}  // namespace quadrille
