// bf16 products by oneDNN's matmul primitive, for CPUs whose bf16 arithmetic is faster than their fp32. For gemm.cpp and its test.
#pragma once
#include "kernels/gemm.hpp"

namespace quadrille {

// Whether this CPU multiplies bf16 faster than fp32: it has AMX, or is an AMD with AVX512_BF16. A property of the machine alone,
// so that a run takes the same path each time.
bool native_bf16();

// gemm for bf16 operands on the whole team (on the calling thread alone inside a parallel region).
void gemm_native(const Gemm& g);

}  // namespace quadrille
