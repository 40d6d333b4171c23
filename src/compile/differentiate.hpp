// Appends the backward pass to a chunk: Part::backward_input makes gradients of activations, Part::backward_weight those of weights.
#pragma once
#include "model/model.hpp"

namespace quadrille {

// An activation's gradient has the activation's placement: contributions of like placement are added, then moved there by one
// Redistribute. Only behind ops whose gradient is linear in a Partial cotangent may it stay Partial, so q, k and v share one
// reduction. Fills seed, input_gradient and weight_gradients.
void differentiate(Chunk&, const Model&);

}  // namespace quadrille
