// Appends the backward pass to a chunk: Part::backward_input makes gradients of activations, Part::backward_weight those of weights.
#pragma once
#include "model/model.hpp"

namespace quadrille {

// An activation's gradient has the activation's placement: contributions of like placement are added, then moved there by one
// Redistribute. Only behind ops whose gradient is linear in a Partial cotangent may it stay Partial, so q, k and v share one
// reduction. Gradients are made of trained parameters and, where `input_wanted`, of the chunk's input, and of what leads to them: of nothing
// else, so that neither a frozen weight's product nor anything below the first trained parameter is there. Fills seed, input_gradient (-1: not
// made) and weight_gradients. Returns whether a gradient of the chunk's result is of use: to it, or to the chunk before.
bool differentiate(Chunk&, const Model&, bool input_wanted);

}  // namespace quadrille
