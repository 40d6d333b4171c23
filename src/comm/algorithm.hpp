// The ways in which a collective can be carried, and which of them serves a move. Pure: the choice is a function of what all members
// of the group know alike, so all make the same. To add one: a name here, its rule in algorithm_for, a MoveCarrier in Work.
#pragma once
#include "comm/move.hpp"

namespace quadrille {

enum class Algorithm {
    automatic,     // ring or shared, whichever is faster for the move: the same bits
    ring,          // messages round the ring, or directly where slices are small
    doubling,      // recursive doubling, for scalars and small maxima; no group is given it
    shared,        // memory that the ranks of a node share; the ring's sums, bit for bit
    hierarchical,  // shared inside a node, ring between nodes: sums inside the nodes first
    native,        // the MPI library's nonblocking collectives: its order of summation
};

class MeasuredTimes;

// Of a group of so many members that was given `of_group`; never automatic, which `times` decide. Stage messages, ring steps and what a
// group has no better way for are messages.
Algorithm algorithm_for(Algorithm of_group, const Move& move, int members, const MeasuredTimes& times);

// Whether it lets groups on one node share memory.
constexpr bool shares_memory(Algorithm a) {
    return a == Algorithm::automatic || a == Algorithm::shared || a == Algorithm::hierarchical;
}

// Whether it needs a place of its group: memory of its own, and all that belongs to it.
bool needs_place(MoveKind kind);

}  // namespace quadrille
