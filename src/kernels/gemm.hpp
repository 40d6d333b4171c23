// One matrix product: row-major, any leading dimension, f32, bf16 or f16 storage, f32 accumulation.
#pragma once
#include "base/error.hpp"
#include "ir/dtype.hpp"
#include <cstdint>

namespace quadrille {

// C[m,n] = op(A) op(B) (+ bias[n]) (+ C if accumulate), where op(A)[m,k] is A[m,k], or A[k,m] read transposed, and
// op(B)[k,n] is B[k,n], or B[n,k] read transposed. Leading dimensions count elements between stored rows.
// Types: all f32; or A, B bf16 with C f32 or bf16, or the same with f16; bias of C's type, or of any of these
// where C is f32. accumulate wants C in f32 and no bias.
// Any of m, n, k may be 0: a product over no k is zero.
struct Gemm {
    std::int64_t m = 0, n = 0, k = 0;
    const void* a = nullptr;
    DType a_type = DType::f32;
    std::int64_t lda = 0;
    bool a_transposed = false;
    const void* b = nullptr;
    DType b_type = DType::f32;
    std::int64_t ldb = 0;
    bool b_transposed = false;
    void* c = nullptr;
    DType c_type = DType::f32;
    std::int64_t ldc = 0;
    bool accumulate = false;
    const void* bias = nullptr;
    DType bias_type = DType::f32;
    void* workspace = nullptr;  // gemm_workspace bytes, 64-byte aligned, of this call alone; contents are of no account before and after
};

// For devices: throws logic_error where Gemm's types go with no product.
inline void require_types(const Gemm& g) {
    const bool f32 = g.a_type == DType::f32 && g.b_type == DType::f32 && g.c_type == DType::f32;
    const bool mixed = half_width(g.a_type) && g.b_type == g.a_type && (g.c_type == DType::f32 || g.c_type == g.a_type);
    require(f32 || mixed, "gemm: the types must be f32 f32 -> f32, bf16 bf16 -> f32 | bf16 or f16 f16 -> f32 | f16");
    require(!g.bias || g.bias_type == g.c_type || g.c_type == DType::f32, "gemm: a bias has the type of C, or C is f32");
    require(!g.accumulate || (g.c_type == DType::f32 && !g.bias), "gemm: accumulate wants C in f32 and no bias");
}

}  // namespace quadrille
