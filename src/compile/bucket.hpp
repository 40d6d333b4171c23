// Joins moves of the training state into buckets.
#pragma once
#include "ir/program.hpp"

namespace quadrille {

// Moves of units' flat tensors between ranks (reductions of gradients, gathers of new weights) that go the same way travel in one call, issued where
// the last of them stood, as soon as they hold `bucket_bytes` together; a unit larger than that travels alone. Each is still cut in its own slices:
// the same sums. What adds up or moves on a result that waits is put behind it; any other reader ends the bucket. Gathers in front of a use (stage 3)
// stay by themselves.
void bucket(Program&, std::int64_t bucket_bytes);

// Whether an op is such a move, by itself or joined already.
bool travels_in_buckets(const Program&, const Op&);

}  // namespace quadrille
