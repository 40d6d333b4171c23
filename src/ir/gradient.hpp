// The gradient rule of each kind: which ops make the gradients of an op's inputs from the gradient of its output.
//
// Every gradient op is linear in the cotangent, so a Partial cotangent may flow through it; where it stops flowing is decided by
// the pass that calls these rules (compile/differentiate).
#pragma once
#include "ir/program.hpp"

#include <functional>

namespace quadrille {

struct InputGradient {
    int input;              // position among the op's inputs
    TensorId gradient;
};

bool has_gradient(Kind);
// True for kinds whose gradient ops are linear in a cotangent that is still Partial: behind these it may stay so.
bool carries_partial(Kind);
// Appends the gradient ops of `op` (which must have a gradient) to `p`. dy is the gradient of its first output. Bit i of `wanted`: that of
// input i is asked for; an op that makes none of those is left out, one that makes several at once may bring others too. Gradients of
// weights are of `weight_gradient` dtype, and their ops belong to Part::backward_weight; all others to Part::backward_input.
std::vector<InputGradient> append_gradient(Program& p, const Op& op, TensorId dy, DType weight_gradient, unsigned wanted);

}  // namespace quadrille
