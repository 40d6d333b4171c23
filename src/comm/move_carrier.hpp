// What carries a move: a state machine that goes on as far as it can each time it is asked, and never waits.
#pragma once
#include <mpi.h>

#include <span>

#include "comm/operands.hpp"

namespace quadrille {

class NativeTypes;
struct SharedPlace;
struct Levels;

// Where a move goes, and what it may use there.
struct Channel {
    MPI_Comm comm = MPI_COMM_NULL;  // for messages
    int tag = 0;                    // of its messages
    int members = 1, me = 0;        // send, receive: of the world
    std::span<std::byte> staging;   // Work::place_bytes, if it needs a place
    std::int64_t segment_bytes = 0, max_count = 0;
    double clock_difference = 0;             // receive: to add to the sender's now() to get mine
    MPI_Comm collectives = MPI_COMM_NULL;    // native: of this place alone, so that its calls have one order
    const NativeTypes* types = nullptr;      // native
    SharedPlace* shared = nullptr;           // shared, and a level of hierarchical
    const Levels* levels = nullptr;          // hierarchical
};

// One per move in flight, used again and again: it keeps its capacity. Called under the engine's lock.
class MoveCarrier {
  public:
    virtual ~MoveCarrier() = default;
    // Takes the move and posts what can be posted. All three stay as they are until it has finished.
    void enter(const Operands& operands, const Channel& channel, MoveTimes& record) {
        o_ = &operands;
        channel_ = &channel;
        record_ = &record;
        begin();
        advance();
    }
    // Carries on; tells whether anything happened. Sums or copies little in one call, so that urgent moves get in.
    virtual bool advance() = 0;
    virtual bool finished() const = 0;

  protected:
    // Of the move that has just been taken.
    virtual void begin() = 0;
    const Move& move() const { return *o_->move; }

    const Operands* o_ = nullptr;
    const Channel* channel_ = nullptr;
    MoveTimes* record_ = nullptr;
};

}  // namespace quadrille
