// The few blocking collectives that set-up, logging, votes and files need, over all ranks, on a communicator of their own. Training's own messages go
// through the Engine.
//
// Invariant: the communicator returns its errors; mpi_check turns them into Error. By one thread at a time: another thread has its own.
#pragma once
#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace quadrille {

class Evidence;

// Throws Error{rank_failed} with MPI's own text and the place unless rc is MPI_SUCCESS.
void mpi_check(int rc, Location at = Location::current());

class Collectives {
  public:
    // On a duplicate of this communicator, for another thread: what waits in it is not told in the rank's evidence, and what gets on is counted in
    // `beats`, if there is one. Collective over its ranks, as is the end.
    explicit Collectives(MPI_Comm of, std::atomic<std::int64_t>* beats = nullptr) : beats_(beats) { take(of); }
    ~Collectives() { release(); }
    Collectives(const Collectives&) = delete;
    Collectives& operator=(const Collectives&) = delete;

    int rank() const { return rank_; }
    int size() const { return size_; }
    MPI_Comm comm() const { return comm_; }

    void barrier() const;
    std::string broadcast(const std::string& text) const;  // rank 0's text, on every rank
    void broadcast(std::span<double> values, int root) const;
    std::int64_t min(std::int64_t x) const;
    std::int64_t max(std::int64_t x) const;
    // Each value becomes the largest of any rank. Equal lengths on all ranks.
    void max(std::span<std::int64_t> values) const;
    // Each value becomes the sum over all ranks, modulo 2^64. Equal lengths on all ranks.
    void sum(std::span<std::uint64_t> values) const;
    bool all(bool x) const { return min(x) != 0; }
    // Rank 0 gets everyone's values, rank-major (size() * values.size()); the others an empty vector. Equal lengths on all ranks.
    std::vector<double> gather(std::span<const double> values) const;
    std::vector<std::int64_t> gather(std::span<const std::int64_t> values) const;
    // The same for texts of any lengths, rank by rank, in messages of up to `piece` bytes.
    std::vector<std::string> gather(const std::string& text, std::int64_t piece = std::int64_t{1} << 30) const;

    // As long as the answer lives, this rank waits in what all ranks do and these calls do not: MPI-IO, a thread's work. Tells of it as of them.
    [[nodiscard]] std::shared_ptr<const void> waits() const;
    // Tells that something has got on.
    void beat() const;

  protected:
    Collectives() = default;
    void take(MPI_Comm of);  // duplicates it
    void release();
    void tell(Evidence& evidence) { evidence_ = &evidence; }  // from here on of every wait

  private:
    MPI_Comm comm_ = MPI_COMM_NULL;
    int rank_ = 0, size_ = 1;
    Evidence* evidence_ = nullptr;
    std::atomic<std::int64_t>* beats_ = nullptr;
};

}  // namespace quadrille
