// A program as text, one op a line: stable, so that it can be compared and kept as a golden file.
#pragma once
#include "ir/program.hpp"

namespace quadrille {

// "   40 F3 layers.0  redistribute(layers.0/matmul.7@3) -> layers.0/redistribute.8@3: f32[8,32,64]  [all_reduce over tp, until 42]"
std::string text(const Program&, std::size_t op);
std::string text(const Program&);

}  // namespace quadrille
