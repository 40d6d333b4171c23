// Joins the reductions of gradients into buckets, and says how long each move may stay in flight.
#pragma once
#include "ir/program.hpp"

namespace quadrille {

// Consecutive all-reduces of units' gradients over the same axes travel in one call, issued where the last of them stood, as soon as
// they hold `bucket_bytes` together; a unit larger than that travels alone. Each is still cut in its own slices: the same sums.
void bucket(Program&, std::int64_t bucket_bytes);

// Sets Op::until of every move. With overlap, a move is in flight until the first op that reads what it brings, and a send until the
// second send after it to the same peer. Without, every move is done before the next op.
void overlap(Program&, bool allowed);

}  // namespace quadrille
