// Which of a model's matrices get low-rank adapters (Hu et al. 2021, section 4): the vocabulary of model.lora.targets. Owns the names and
// sizes of the matrices of linear layers; the model, which makes them, asks here whether one is a target. The tables of tokens and
// positions and the head are none.
#pragma once
#include "config/config.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace quadrille {

// A matrix y = x wᵀ of one block: w is [out, in], with heads and head sizes counted together.
struct LinearMatrix {
    std::string name;  // layers.0.attention.q
    std::int64_t out = 0, in = 0;
    std::int64_t adapter(std::int64_t rank) const { return rank * (in + out); }  // elements of A [rank, in] and B [out, rank]
};

// Those of block `layer`, in the model's order.
std::vector<LinearMatrix> linear_matrices(const ModelConfig&, std::int64_t layer);

// Whether the target is a run of whole parts of the matrix's name, as o, attention, attention.o and layers.3 are of layers.3.attention.o; "all"
// names every matrix.
bool names_matrix(std::string_view target, std::string_view matrix);

// The layers that have to be asked whether a target names something of theirs: 0, which all others are like, and those whose number may be in it.
std::vector<std::int64_t> layers_told_apart(std::string_view target, std::int64_t num_layers);

// Whether the matrix gets an adapter.
bool is_target(const LoraConfig&, std::string_view matrix);

}  // namespace quadrille
