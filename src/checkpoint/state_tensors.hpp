// What of a program's training state is in a checkpoint, and under which names.
#pragma once
#include "checkpoint/checkpoint.hpp"

namespace quadrille {

// A dataset and the state that it holds: a parameter's fp32 master (the weight itself where there is none), or a moment.
struct StateTensor {
    StoredTensor stored;
    int parameter = 0;
    StateKind what = StateKind::master;
};

// /parameters/NAME, /optimizer/m/NAME, /optimizer/v/NAME; "" for state that no checkpoint has.
std::string dataset_path(const std::string& parameter, StateKind what);

// All of the model's, parameters first, in the model's order: moments where any rank has them. Alike on all ranks. Collective.
std::vector<StateTensor> state_tensors(const Collectives&, const Program& training);

// Whether this rank's program has such a state of the parameter, beside the weight.
bool has_state(const Program& training, int parameter, StateKind what);

}  // namespace quadrille
