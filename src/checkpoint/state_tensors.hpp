// What of a program's training state is in a checkpoint, and under which names.
#pragma once
#include "checkpoint/checkpoint.hpp"

namespace quadrille {

// A dataset and the state that it holds: a parameter's fp32 master (the weight itself where there is none), a moment, or terms of a sum, one behind
// the other: [terms, shape...].
struct StateTensor {
    StoredTensor stored;
    int parameter = 0;
    StateKind what = StateKind::master;
};

// /parameters/NAME, /optimizer/m/NAME, /optimizer/v/NAME, /residual/NAME, /stale/NAME; "" for state that no checkpoint has.
std::string dataset_path(const std::string& parameter, StateKind what);

// All of the model's, parameters first, in the model's order: other state where any rank has it. Alike on all ranks. Collective.
std::vector<StateTensor> state_tensors(const Collectives&, const Holdings& held);

// What they take in a file, of fp32 each.
std::int64_t bytes_of(const std::vector<StateTensor>&);

}  // namespace quadrille
