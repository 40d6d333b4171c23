// From chunk templates and the pipeline's orders to one program per pp coordinate: loads, forwards and backwards of every microbatch,
// sends and receives. Parameters are still bare tensors and gradients go nowhere yet: `place` gives both a home.
#pragma once
#include "compile/schedule.hpp"
#include "model/model.hpp"

namespace quadrille {

struct Step {
    explicit Step(std::shared_ptr<Tables> tables) : program(std::move(tables)) {}
    Program program;
    std::unordered_map<TensorId, int> parameters;                  // by index in Model::parameters
    std::unordered_map<TensorId, WeightGradient> weight_gradients; // uses are numbered over all chunks of the coordinate
    bool training = false;                                         // there are backward passes, though maybe of nothing on this coordinate
    std::vector<TensorId> losses;                                  // one per microbatch, where the last chunk is
    TensorId inverse_tokens = -1, tokens = -1;                     // of the global batch, where the last chunk is
    TensorId seed = -1;                                            // the cotangent of each loss: 1/tokens, times the loss scale if there is one
};

// Tensor x of a template becomes x@m for microbatch m. The inputs of the whole step are loaded first, since the loss is the mean
// over the counted tokens of all its microbatches.
std::vector<Step> instantiate(const Model&, const std::vector<Order>&, int microbatches);

// Issues each receive where its sender sends: runs all coordinates together and, when one sends, appends the receive to its peer. The
// run is itself the proof that sends which block until they are received cannot dead-lock. Throws TypingError if the schedule cannot finish.
void place_receives(std::vector<Step>&);

}  // namespace quadrille
