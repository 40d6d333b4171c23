// What a linear layer of the model is made of: its weight, and the pair of low-rank weights beside it where it has an adapter. Owns the
// adapter's shapes, cuts, initial values and signatures; makes no op and does not choose which layers have one. Internal to the model.
#pragma once
#include "ir/program.hpp"

#include <string>
#include <vector>

namespace quadrille {

struct Weight {
    std::string name;
    std::vector<std::int64_t> shape;
    std::vector<Cuts> cuts;                     // of each dim
    Init init = Init::normal;
    double deviation = 0;                       // 0: the model's init_std
    std::int64_t true_rows = 0;                 // of a padded vocabulary dim
    std::string unit = {};                      // else the one being built
    bool adapter = false;                       // of a low-rank pair: trained where all else is frozen, so in a unit of its own
    std::int64_t fan_in = 0;                    // of Init::uniform
};

struct Linear {
    const char *product, *bias;                 // signatures: x, weight -> y; y, bias -> y
    Weight weight;
    std::vector<std::int64_t> bias_shape;
    Cuts bias_cuts;                             // of its first dim
    const Placement* home = nullptr;            // null: the product is whole where it is
    TensorId cut_x = -1;                        // x before it was gathered over tp, if it was
};

// The low-rank pair of one layer (eq. 3 of Hu et al. 2021): A [r, in] with the cuts of w's inputs, B [out, r] with those of its outputs.
struct Adapter {
    Weight a, b;
    std::string into, out_of, sum;              // signatures: x, A -> u; u, B -> z; y, z -> y
};

// That of `l` at a rank. A starts as a linear layer's weight does (He et al. 2015 with a = sqrt(5)), B at zero, so that training starts from
// the model as it is.
Adapter adapter_of(const Linear& l, std::int64_t rank);

}  // namespace quadrille
