// comm.check: before a collective, its members compare what they are about to do. Each tells the group's first member, which compares and lets
// all begin, or says who differs. A debugging aid: two messages more before every collective, which waits for all of its members.
#pragma once
#include <mpi.h>

#include <cstdint>
#include <vector>

#include "comm/move.hpp"

namespace quadrille {

// What must be the same for all members of a collective, and where it stands in the sender's program. Travels as it is.
struct Promise {
    std::int64_t sequence = 0, count = 0, segments = 0;  // number in the group's lane; elements of the whole buffers
    std::int32_t kind = 0, dtype = 0, op = 0, program = -1, line = -1;
    bool agrees_with(const Promise& other) const;
};

class Handshake {
  public:
    // `comm`: the group's, for this alone. `ranks`: of the world, in the group's order.
    Handshake(MPI_Comm comm, std::vector<int> ranks, int me, DescribeLine describe);

    // Before the move of this number. Never blocks.
    void begin(const Move& move, std::int64_t sequence);
    // Whether all may begin, which ends this handshake. Error{rank_failed} on the first member if a member differs, with both sides' lines.
    bool agreed();

  private:
    void compare() const;
    std::string text_of(const Promise& promise, int member) const;

    MPI_Comm comm_;
    std::vector<int> ranks_;
    int me_;
    DescribeLine describe_;
    bool compared_ = false;
    std::vector<Promise> promises_;        // of the first member: all; else this rank's own
    std::vector<MPI_Request> requests_;
};

}  // namespace quadrille
