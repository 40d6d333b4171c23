// Drops what the backward pass reads of a block's forward and the policy does not keep, and makes it again there.
#pragma once
#include "model/model.hpp"

namespace quadrille {

// A dropped activation has no home: the ops that make it are cloned in front of its first use in the backward pass. After
// differentiate, before expand_rings and fuse, which treat clones as they treat what they are clones of.
//
//   none       keeps everything but the copies that Megatron sequence parallelism gathers over tp: of those a rank keeps its own piece
//              (Korthikanti et al. 2022, section 4.2.2)
//   selective  keeps products, attention's results, residual sums and moves; makes norms, activations, rotary, dropout and gathered copies again
//   full       keeps the block's input alone (Chen et al. 2016, a segment a block)
//
// What lies outside the blocks is kept: the embedding saves nothing, and the head would be made again right after it was made. A clone is
// of the weight part only if no input part needs it and keeping what it reads that long takes less than keeping what it makes.
void recompute(Chunk&, Granularity);

}  // namespace quadrille
