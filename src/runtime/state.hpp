// Where the training state lies in a rank's arena, and its first values.
#pragma once
#include "ir/program.hpp"
#include "runtime/arena.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace quadrille {

// Fills weights (and fp32 masters) of a training program: normal and uniform deviates are a function of (seed, parameter, global
// element), padding is zero, so every grid starts from the same bits; moments and residuals are zero. Not collective.
void initialize(const Program& training, const Coordinate& at, Arena& arena, std::uint64_t seed, int threads);

// `count` elements of a parameter, from `element` on in its true shape and row-major, that stand one after the other: at `data`, or from byte
// `place` of the nvme tier's file on.
struct Piece {
    std::byte* data = nullptr;
    DType dtype = DType::f32;
    std::int64_t element = 0, count = 0;
    std::int64_t place = -1;
};

// What the rank at `at` holds of program.parameters[parameter], in ascending order of its elements. So many ranks hold the same, and this one is
// number `copy` of them.
struct Holding {
    std::vector<Piece> pieces;
    std::int64_t copies = 1, copy = 0;
};

// Nothing where another pp coordinate has the parameter, or where the program has no such state. A master is the weight itself in fp32 runs, and
// where the parameter is frozen. Not collective.
Holding holding_of(const Program& training, const Coordinate& at, const Arena& arena, int parameter, StateKind what);

// Memory of the device tier that holds nothing between two steps: whoever works there then may use it.
std::span<std::byte> free_between_steps(const Program& training, const Arena& arena);

// The pieces alone, all of them in memory. A gradient is what the last step left in its buffer: valid where nothing later in the step used that
// memory. Tests put parameters together from these. Not collective.
std::vector<Piece> pieces_of(const Program& training, const Coordinate& at, const Arena& arena, int parameter, StateKind what);

}  // namespace quadrille
