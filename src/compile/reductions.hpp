// Units' gradients once all of a step's are in: what is Partial over ranks is summed, to where the optimizer works. Internal to `place`.
#pragma once
#include "compile/homes.hpp"

namespace quadrille {

// Of a tensor made of t, a gradient.
Program::Options gradient_like(const Program&, TensorId t);

// The placement of g when it is summed over the axes of `cut` and each rank has its slice.
Placement reduced_over(const Program&, TensorId g, const Cuts& cut);

// Where updates are stale: what the step before has left travels while this step computes, into memory of its own, since the step's own gradients
// take its place. In the order in which the backward pass will come to the units. UnitState::reduced is the sum.
void reduce_stale(Program&, Homes&);

// Once per step: what of the unit's gradient is still Partial over ranks is summed. Where there are copies of the state, first over the ranks of a
// copy, each of which then has its slice, then over the copies: at every stage, so that they have the same bits. UnitState::reduced is the sum.
void finish_reduction(Program&, Homes&, const Model&, int unit);

}  // namespace quadrille
