// The training state in the arena: its first values, and whole parameters put together from the ranks' pieces.
#pragma once
#include "comm/world.hpp"
#include "ir/program.hpp"
#include "runtime/arena.hpp"

#include <cstdint>
#include <vector>

namespace quadrille {

// Fills weights (and fp32 masters) of a training program: normal deviates are a function of (seed, parameter, global
// element), padding is zero, so every grid starts from the same bits; moments are zero. Not collective.
void initialize(const Program& training, const Coordinate& at, Arena& arena, std::uint64_t seed, int threads);

enum class Copy : std::uint8_t { weight, master, gradient, m, v };  // master: the weight itself in fp32 runs

// The global value of program.parameters[parameter], in true shape and row-major, on rank 0; empty elsewhere. Collective over
// the world. A gradient is what the last step left in its buffer: valid where nothing later in the step used that memory.
// `replicas_equal`, if given, is set on rank 0: whether all copies of every element have the same bits.
std::vector<float> gather_parameter(const Program& training, World& world, const Arena& arena, int parameter, Copy what,
                                    bool* replicas_equal = nullptr);

// True if all copies of every parameter are bit-equal over the ranks that hold them. The same answer on all. Collective.
bool replicas_equal(const Program& training, World& world, const Arena& arena);

}  // namespace quadrille
