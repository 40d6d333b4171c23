// Saved activations in another tier.
#pragma once
#include "ir/program.hpp"

namespace quadrille {

// What a microbatch's forward pass makes and its backward pass reads again is stored after its last use in the forward pass, and loaded in
// front of its first use in the backward pass. What is needed again before the second unit from there begins stays: it would come and go at once.
void offload_activations(Program&, Tier);

}  // namespace quadrille
