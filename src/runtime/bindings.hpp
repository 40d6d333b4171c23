// The kinds whose binding takes more than a line, each in a file of its own. Private to the room.
#pragma once
#include "runtime/kernels.hpp"

namespace quadrille {

// c[out] = a[..] b[..] (+ bias) for any signature that is one matrix product after grouping letters.
Kernel bind_matmul(const Call& c);
std::int64_t matmul_workspace(const Program& program, const Op& op, int threads);

Kernel bind_attention(const Call& c);
std::int64_t attention_workspace(const Program& program, const Op& op, int threads);

// sum_squares, adamw, sgd, join: what looks into a unit's flat buffer.
Kernel bind_flat(const Call& c);
std::int64_t sum_squares_workspace(const Program& program, const Op& op);  // of retain too
// How much a norm that is the square root of norm2 scales gradients; norm2 must be finite. Pascanu et al. 2013, section 3.2.
double clip_factor(double norm2, double clip);
// Whether an update is made: a norm that is not finite does not count, nor stale gradients of no step.
bool counts(double norm2, bool stale, const StepInputs&);
// x times a power of the step's loss scale, which is itself a power of two: nothing is rounded.
double scaled(double x, const StepInputs&, int power);

// compress, decompress, retain.
Kernel bind_packets(const Call& c);

// load, and redistributes that stay on the rank.
Kernel bind_load(const Call& c);
Kernel bind_local(const Call& c);

}  // namespace quadrille
