// The evidence pages of one node's ranks, in memory that they share, and which rank is on which node. What stands in a page is the rank's own to
// say (comm/evidence.hpp).
#pragma once
#include <mpi.h>

#include <vector>

#include "comm/evidence.hpp"
#include "comm/shared_memory.hpp"

namespace quadrille {

class EvidencePages {
  public:
    // Collective over `world`; `node` holds its ranks that share memory with this one. Its end is collective over the node, before MPI ends.
    EvidencePages(MPI_Comm world, MPI_Comm node);

    EvidencePage& mine() { return *pages_[static_cast<std::size_t>(me_)]; }
    // Of the node's first rank.
    EvidencePage& first() { return *pages_.front(); }
    // Null for a rank of another node.
    const EvidencePage* of(int world_rank) const;
    // The world rank that is next after this one on the node, round; this one where it is alone.
    int neighbour() const { return ranks_[(static_cast<std::size_t>(me_) + 1) % ranks_.size()]; }
    // Equal for ranks of one node: the world rank of its first.
    int node_of(int world_rank) const { return nodes_[static_cast<std::size_t>(world_rank)]; }

  private:
    SharedMemory memory_;
    int me_ = 0;                        // on the node
    std::vector<int> ranks_;            // of the world, on this node
    std::vector<int> nodes_;            // by world rank
    std::vector<EvidencePage*> pages_;  // by rank on the node
};

}  // namespace quadrille
