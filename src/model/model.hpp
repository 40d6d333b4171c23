// The forward pass of one pipeline chunk, written as ops. No backward, no schedule, no placement of state.
//
// Parallelism shows in two places only: the cuts of each weight, and `to(x, home)` where an activation has a home (the residual
// stream, the inputs of attention). Every other placement follows from the typing rules.
#pragma once
#include "config/config.hpp"
#include "ir/program.hpp"

#include <unordered_map>

namespace quadrille {

// A gradient of a parameter as the backward pass makes it: the `use`-th of its uses in the chunk.
struct WeightGradient { int parameter = 0, use = 0; };

// One pipeline chunk: a template that the schedule instantiates once per microbatch.
struct Chunk {
    explicit Chunk(std::shared_ptr<Tables> tables) : program(std::move(tables)) {}
    Program program;
    TensorId input = -1, result = -1;               // residual stream in (-1: the first chunk) and out (the last: the loss sum)
    std::vector<NameId> blocks;                     // units that are transformer blocks
    TensorId seed = -1, input_gradient = -1;        // set by differentiate: cotangent of the result, gradient of the input
    std::unordered_map<TensorId, int> parameters;   // tensors that are parameters, by index in Model::parameters
    std::unordered_map<TensorId, Input> inputs;     // tensors that come from the batch
    std::unordered_map<TensorId, WeightGradient> weight_gradients;  // set by differentiate
};

struct Model {
    std::shared_ptr<Tables> tables;
    std::vector<Parameter> parameters;
    std::vector<Chunk> chunks;                      // pp · virtual stages, in order
    TypeId residual = 0;                            // the type that travels between chunks
    DType activation = DType::f32, weight_gradient = DType::f32;
    bool scales_loss = false;                       // the backward pass is that of the loss times the step's loss scale (fp16)
};

// The names of the model's units that are trained, in the order of its parameters.
std::vector<std::string> trained_units(const Model&);

// Rank coordinates of a resolved input: dp is replica x shard by `sharding.shard_size`, tp is split in tp x tq where key-value heads are too few.
Grid grid_of(const Config&);

// How many layers each chunk has: as given, else by cost: the head counts as the layers that compute as much in a forward pass.
std::vector<int> layers_per_chunk(const Config&);

// The model of a resolved and checked input. Throws TypingError where a shape does not fit the grid.
Model build_model(const Config&, std::shared_ptr<Tables>);

}  // namespace quadrille
