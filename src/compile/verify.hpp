// Proves a step's programs sound, for the whole grid, before anything runs. Reads one program per pp coordinate; executes nothing.
//
// One program per coordinate is the whole grid: ranks with equal pp coordinate run the same text, and no op of it branches on another
// coordinate. So collectives inside a coordinate match by construction, and sends go from (i, rest) to (j, rest): the grid is so many
// copies of one small system of pp processes. If that system finishes, all do: with blocking channels the order in which ranks advance
// does not matter (Kahn 1974). Only moves over pp are compared.
#pragma once
#include "ir/program.hpp"

#include <string>
#include <vector>

namespace quadrille {

struct Fault {
    int coordinate = -1;        // of pp; -1: the programs together
    std::int32_t op = -1;       // index; -1: the program as a whole
    std::string reason;
};
std::string text(const std::vector<Program>&, const Fault&);

using Faults = std::vector<Fault>;

// Every op obeys the rule of its kind, every tensor is made once and before it is read, results that must share their place do, nothing
// moves for nobody, and all that moves between ranks does so in one memory; each trained unit's weights are updated once, from their own weights
// and gradient.
void verify_types(const Program&, Faults&);
// No two live tensors overlap: what is read is intact, and the training state is intact when the step ends.
void verify_memory(const Program&, Faults&);
// Sends and receives pair off in order, and the step finishes even if every send blocks until it is received.
void verify_messages(const std::vector<Program>&, Faults&);
// With moves erased and sums as multisets, the loss and every parameter's update mean what they mean in the program for one rank.
void verify_meaning(const std::vector<Program>&, const Program& serial, Faults&);

// All four, stopping after the first that finds fault. An empty answer is the proof.
Faults verify(const std::vector<Program>&, const Program& serial);
// The same for programs that were just compiled: a fault is this program's own. Throws logic_error with the first one.
void require_sound(const std::vector<Program>&, const Program& serial);

}  // namespace quadrille
