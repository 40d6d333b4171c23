// How fast a machine computes and moves, as its user measured or assumes it, and what a compiled step takes at that pace. Seconds, by a model that
// knows overlap and rings, and neither caches nor kernels of no FLOPs: good for comparing two ways of moving the same data.
#pragma once
#include "grid/topology.hpp"
#include "plan/costs.hpp"

#include <map>

namespace quadrille {

// An all-reduce of so many bytes on each of so many ranks of one node, by the fastest way there is.
struct AllReduceTime {
    int ranks = 2;
    std::int64_t bytes = 0;
    double seconds = 0;
};

struct Machine {
    Topology links;
    double flops_per_second = 1e12;          // of one rank, all ranks at work
    std::vector<AllReduceTime> all_reduces;  // where they were measured, they tell more of collectives inside a node than its links do
    double copy_bandwidth = 1e10;            // bytes a second between a rank's device and host memory, either way,
    double disk_bandwidth = 2e9;             // and to and from its disk
    double core_share = 0;                   // of a rank's arithmetic, what stands still while it has a move inside its node under way: the move's
                                             // thread has no core of its own, and takes one of the arithmetic's
    bool assumed = true;                     // nobody has measured
};

class Pace {
  public:
    // Both must outlive it.
    Pace(const Grid& grid, const Machine& machine) : grid_(grid), machine_(machine) {}

    double flops_per_second() const { return machine_.flops_per_second; }
    // Of a rank's arithmetic, while a move over these axes is under way.
    double taken_by(AxisSet axes) { return ring(axes).farthest == Link::network ? 0 : machine_.core_share; }
    const RingSpeed& ring(AxisSet axes);
    // Of one move, with nothing else on the way.
    double seconds(const MoveCost&);
    // Likewise between tiers of memory, on this queue.
    double seconds(Queue, std::int64_t bytes) const;

  private:
    void use_measured(RingSpeed&, AxisSet axes) const;

    const Grid& grid_;
    const Machine& machine_;
    std::map<unsigned, RingSpeed> rings_;  // by the bits of the set
};

struct StepTime {
    double seconds = 0;  // of the step
    double compute = 0;  // what its arithmetic takes alone: what is left is waiting, and the cores that moves have taken
};
// Of the first rank that runs this program: ops in order, each set of axes and each queue between tiers one move at a time, each move from its issue,
// or once the moves are done that bring what it reads, until somebody needs it. Stages are not waited for.
StepTime step_time(const Program&, Pace&);

}  // namespace quadrille
