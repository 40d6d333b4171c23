// Gives the training state its home: parameters, gradients and optimizer state in the flat buffers of their units, and the moves and
// the update that follow from where these lie. Replicated over dp (ZeRO stage 0).
#pragma once
#include "compile/instantiate.hpp"

namespace quadrille {

// A step with gradients becomes: views of each unit's weights; gradients summed in place in the unit's flat buffer; when the unit's
// last contribution is in, its reduction over tp (where Partial there) and over dp and sp; at the end one norm for the whole model, the
// update of every unit, and the mean loss. A step without backward (evaluation) gets the views and the loss.
Program place(Step, const Model&, const Config&);

}  // namespace quadrille
