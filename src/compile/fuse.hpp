// Joins ops that one kernel does in one pass over memory: matmul + bias (+ gelu), and residual + norm.
#pragma once
#include "model/model.hpp"

namespace quadrille {

// A bias joins a product only where the product is whole (never behind a row-parallel product, whose bias comes after the move), a
// norm the addition whose result it reads. Results keep their names: what the backward pass reads is still made.
void fuse(Chunk&);

}  // namespace quadrille
