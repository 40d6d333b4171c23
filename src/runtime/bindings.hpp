// The kinds whose binding takes more than a line, each in a file of its own. Private to the room.
#pragma once
#include "runtime/kernels.hpp"

namespace quadrille {

// c[out] = a[..] b[..] (+ bias) for any signature that is one matrix product after grouping letters.
Kernel bind_matmul(const Call& c);
std::int64_t matmul_workspace(const Program& program, const Op& op, const Kernels& kernels);

Kernel bind_attention(const Call& c);
std::int64_t attention_workspace(const Program& program, const Op& op, const Kernels& kernels);

// sum_squares, adamw, sgd, join: what looks into a unit's flat buffer.
Kernel bind_flat(const Call& c);
std::int64_t sum_squares_workspace(const Program& program, const Op& op, const Kernels& kernels);
// Whether the step's gradients are of a step at all, which stale ones of the first are not.
bool may_update(bool stale, const StepInputs&);
// x times a power of the step's loss scale, which is itself a power of two: nothing is rounded.
double scaled(double x, const StepInputs&, int power);

// compress, decompress, retain.
Kernel bind_packets(const Call& c);
std::int64_t retain_workspace(const Program& program, const Op& op, const Kernels& kernels);

// load, and redistributes that stay on the rank.
Kernel bind_load(const Call& c);
Kernel bind_local(const Call& c);

}  // namespace quadrille
