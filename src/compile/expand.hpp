// Turns attention over keys that are cut by sp into the turns of a ring: at turn j a rank's queries meet the keys of the rank j before it.
#pragma once
#include "model/model.hpp"

namespace quadrille {

// Forward: keys and values move on one place per turn, issued ahead of the turn's computing; (o, lse) run along in place. Backward:
// the gradients of keys and values travel with them and come home with the last turn. The running results are fp32 and are unusable
// until every turn is in (their type's `covers`).
void expand_rings(Chunk&);

}  // namespace quadrille
