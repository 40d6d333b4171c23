// The MPI world of one run: start and end of MPI, who this rank is, where it runs, and the main thread's blocking collectives.
//
// Invariant: MPI runs at MPI_THREAD_MULTIPLE. One World per process. It does not catch anything: main decides, and calls `abort` when the ranks
// cannot agree on an end.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/collectives.hpp"

namespace quadrille {

class EvidencePages;

// Seconds on this rank's steady clock. Other ranks' readings are compared through World::clock_offset.
double now();

class World : public Collectives {
  public:
    // Starts MPI. Error{refused}, without a message, if the library does not offer MPI_THREAD_MULTIPLE, which all ranks find alike: rank 0 has
    // said so on stderr, before any of them ends. Collective over all ranks.
    World(int* argc, char*** argv);
    // Ends MPI; collective. With messages still in flight (see abandon) it aborts the job with rank_failed instead of hanging.
    ~World();
    World(const World&) = delete;
    World& operator=(const World&) = delete;

    int node_size() const { return node_size_; }  // ranks that share this node's memory
    const std::string& host() const { return host_; }
    int cpus() const { return cpus_; }                // CPUs in this rank's affinity mask
    int cpu_sharers() const { return cpu_sharers_; }  // ranks of the node (this one too) whose masks overlap this rank's
    // Whether each of those ranks could run one thread more than so many without sharing a CPU.
    bool spares_a_core(int threads) const { return (std::int64_t{threads} + 1) * cpu_sharers_ <= cpus_; }
    static std::string library();                     // the MPI library's name and version, one line

    // What this rank is about, where others can read it (comm/evidence.hpp), the pages of its node's ranks, and which rank is on which node.
    Evidence& evidence() const { return *evidence_; }
    const EvidencePages& pages() const { return *pages_; }
    // Whether this is the first on its node to ask: who says why the job ends, where several ranks find out alone.
    bool speaks_first() const;

    // Ends every process of the job at once with this exit code. Does not return.
    [[noreturn]] void abort(Exit code) const;
    // Called when something gives up with messages in flight: MPI_Finalize would then never return.
    void abandon() { abandoned_ = true; }

    // Over the ranks of this node alone; a blocking collective of theirs.
    std::int64_t node_sum(std::int64_t x) const;

    // Seconds to add to `rank`'s now() to get rank 0's, measured at start (0 where it is within the measurement's error).
    double clock_offset(int rank) const { return clock_offsets_[static_cast<std::size_t>(rank)]; }

  private:
    [[noreturn]] static void refuse_threads(int provided);
    void find_node();
    void find_cpus();
    void measure_clocks();

    MPI_Comm node_comm_ = MPI_COMM_NULL;
    int node_rank_ = 0, node_size_ = 1, cpus_ = 1, cpu_sharers_ = 1;
    bool abandoned_ = false;
    std::string host_;
    std::vector<double> clock_offsets_;
    std::unique_ptr<EvidencePages> pages_;
    std::unique_ptr<Evidence> evidence_;
};

}  // namespace quadrille
