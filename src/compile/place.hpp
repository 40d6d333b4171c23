// Gives the training state its home, and inserts the moves that follow: weights gathered where they are read, gradients reduced to where
// they are kept, one norm for the whole model, the update, and new weights gathered where they are whole.
#pragma once
#include "compile/instantiate.hpp"

namespace quadrille {

// A step with gradients becomes, by `sharding.zero_stage`:
//   weights     stages 0 to 2: views of each unit's whole buffer; 3: gathered once per unit and action, in front of the first op that reads one
//   gradients   stages 0 and 1: summed in place over the microbatches in a whole buffer, reduced once, when the unit's last contribution is in;
//               2 and 3: reduced once per microbatch, slices are summed
//   update      of the slice that the optimizer state has; stages 1 and 2 then gather the new weights
// A step without backward (evaluation) gets the weights and the loss. Of weights that are gathered or copied from another tier, `kept` units,
// counted from the end of the forward pass backwards, stay from forward to backward (compile/weights.hpp).
Program place(Step, const Model&, const Config&, int kept = 0);

}  // namespace quadrille
