// A vote of all ranks that runs beside their work: each says a number when it begins a stretch of work, and learns the largest of all when it has
// done it. Eight bytes, on a communicator of its own; the ranks wait for none that has begun.
#pragma once
#include "comm/world.hpp"

namespace quadrille {

class Ballot {
  public:
    // Collective over all ranks, as is all below; the world must outlive it.
    explicit Ballot(const World&);
    ~Ballot();  // waits for a vote that has begun, as it has on all ranks
    Ballot(const Ballot&) = delete;
    Ballot& operator=(const Ballot&) = delete;

    void begin(std::int64_t mine);
    // The largest number that any rank gave to the vote that has begun.
    std::int64_t end();

  private:
    const World& world_;
    MPI_Comm comm_ = MPI_COMM_NULL;
    MPI_Request request_ = MPI_REQUEST_NULL;
    std::int64_t mine_ = 0, largest_ = 0;
};

}  // namespace quadrille
