// The arithmetic of reductions on arrival: out = a op b, element by element, each element once and in no order of its own.
// 16-bit types are added in fp32 and rounded once. No messages, no slices.
#pragma once
#include <cstdint>

#include "comm/move.hpp"

namespace quadrille {

// out[i] = a[i] op b[i] for count elements; out may be a; no other overlap. A NaN operand of max gives NaN.
// dtype: f32, f64, bf16, f16, i32; else std::logic_error.
void combine(ReduceOp op, DType dtype, const void* a, const void* b, void* out, std::int64_t count);

}  // namespace quadrille
