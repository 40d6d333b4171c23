// When moves are issued, and how long they may stay in flight.
#pragma once
#include "ir/program.hpp"

namespace quadrille {

// Issues what is fetched for a use earlier: reads from disk, copies between memories, gathers of weights. Ops of one unit and action are a stretch of
// work; what a stretch uses is issued where the stretch `depth` before it begins, and not before what it brings was made. Distance counts work,
// never moves passed, so what is fetched for at most depth + 1 stretches is there at a time.
void prefetch(Program&, int depth);

// Puts what works on a reduction's result once it is there (sums with earlier microbatches, the sum over replicas) in front of the next reduction, or
// of the first op that reads it: so a reduction has as long to run as the backward pass of the next unit takes.
void postpone(Program&);

// Sets Op::until of every move. With overlap, a move is in flight until the first op that reads what it brings; a send until the second send
// after it to the same peer, a scatter of a whole gradient until the next one is issued, and a store (what goes home to another tier) until
// the second stretch of work after its own that stores begins: two buffers take turns. Without, every move is done before the next op.
void overlap(Program&, bool allowed);

}  // namespace quadrille
