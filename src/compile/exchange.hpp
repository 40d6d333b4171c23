// A gradient summed over ranks by an exchange of packets: compressed, sent to the owners of its slices, unpacked and added there. Internal to
// `place`.
#pragma once
#include "compile/homes.hpp"

namespace quadrille {

// The sum of a compressed unit's gradient g over Homes::exchanged, of which each rank has its slice, in the place that `o` says. With a residual,
// what g's packets leave unsent takes the place of g, if that is fp32, and is UnitState::unsent from here on; g is gone.
TensorId exchange(Program&, Homes&, const Model&, int unit, TensorId g, const Program::Options& o);

// At the end of the step, behind the norm: what is unsent becomes the unit's residual, unless the norm is not finite and the step does not
// count. `norm` lies in the tier that the optimizer works in.
void retain(Program&, const Homes&, int unit, TensorId norm);

}  // namespace quadrille
