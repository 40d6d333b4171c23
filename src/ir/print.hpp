// A program as text, one op a line: stable, so that it can be compared and kept as a golden file.
#pragma once
#include "ir/program.hpp"

namespace quadrille {

// "B 3 layers.0  matmul(x, layers.0.mlp.up.weight) -> y: f32[8,32,64]  [collective: all_reduce tp, until 41]"
std::string text(const Program&, std::size_t op);
std::string text(const Program&);

}  // namespace quadrille
