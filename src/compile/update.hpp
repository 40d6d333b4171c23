// The end of a step: the norm of the whole gradient, and the update of every unit. Internal to `place`.
#pragma once
#include "compile/homes.hpp"

namespace quadrille {

// The place of x's slice where x stands: x cut as `cut` says, for this rank.
TensorId slice_place(Program&, TensorId x, const Placement& cut);
// x moved to `to` without other memory than x's own; x itself if it is there.
TensorId move_in_place(Program&, TensorId x, const Placement& to, const Where&);

// The sum of squares of the unit's reduced gradient, slice by slice: a scalar, Partial over all that tell ranks apart.
TensorId unit_squares(Program&, const Homes&, const Model&, int unit);

// Every unit's gradient is reduced. Sums tied gradients over the ends of the pipeline, takes the norm, updates each unit's weights from
// its own gradient where the optimizer state lies, and gathers them where weights are kept whole. Sets Program::norm.
void update_weights(Program&, Homes&, const Model&, const Config&);

}  // namespace quadrille
