// Where the training state lies in a rank's arena, and its first values.
#pragma once
#include "ir/program.hpp"
#include "runtime/arena.hpp"

#include <cstdint>
#include <vector>

namespace quadrille {

// Fills weights (and fp32 masters) of a training program: normal and uniform deviates are a function of (seed, parameter, global
// element), padding is zero, so every grid starts from the same bits; moments and residuals are zero. Not collective.
void initialize(const Program& training, const Coordinate& at, Arena& arena, std::uint64_t seed, int threads);

// `count` elements of a parameter, from `element` on in its true shape and row-major, that stand one after the other at `data`.
struct Piece {
    std::byte* data = nullptr;
    DType dtype = DType::f32;
    std::int64_t element = 0, count = 0;
};

// What the rank at `at` holds of program.parameters[parameter]; its master is the weight itself in fp32 runs. Nothing where another pp
// coordinate has the parameter, or where the program has no such state (moments of sgd). A gradient is what the last step left in its buffer:
// valid where nothing later in the step used that memory. Tests put parameters together from these. Not collective.
std::vector<Piece> pieces_of(const Program& training, const Coordinate& at, const Arena& arena, int parameter, StateKind what);

}  // namespace quadrille
