// What the moves of a program are on one rank: from a Redistribute, send or receive to the description the Engine runs,
// without addresses. Who takes part and whose elements lie where follow from the types' index lists. Pure.
#pragma once
#include "comm/move.hpp"
#include "ir/program.hpp"

#include <string>
#include <vector>

namespace quadrille {

struct MovePlan {
    Move move;                          // segments have counts only; the group is not set
    std::vector<int> members;           // world ranks of the group, in ring order; empty for send and receive
    AxisSet axes;                       // that it goes over
};

// For Queue::collective and Queue::stage.
MovePlan plan_move(const Program& program, const Op& op, const Coordinate& at);

// World ranks of a collective's group, in ring order.
std::vector<int> members_of(const Program& program, const Op& op, const Coordinate& at);

// A Redistribute that moves nothing between ranks.
struct LocalMove {
    Slice mine;                         // Pair::slice: my elements of the input, in the output's order
    bool keeps = true;                  // Pair::first_keeps: this rank has the value, the others have zeros
};
LocalMove plan_local(const Program& program, const Op& op, const Coordinate& at);

// Where the elements of `part`, as the rank at `part_at` holds them, lie in the local buffer of `whole` at `whole_at`: maximal
// runs, in the order in which they stand in part's buffer. All of them must be there.
Slice slice_of(const Grid& grid, const TensorType& whole, const Coordinate& whole_at, const TensorType& part, const Coordinate& part_at);

// The axes an op's move goes over; pp for send and receive.
AxisSet axes_of(const Program& program, const Op& op);

}  // namespace quadrille
