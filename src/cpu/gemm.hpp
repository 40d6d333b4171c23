// Matrix products on the CPU, by oneDNN (2.6 and 3.x), which only gemm.cpp and gemm_native.cpp use.
//
// Row-major, any leading dimension, f32, bf16 or f16 storage, f32 accumulation. May be called from inside an OpenMP parallel
// region (the product then runs on the calling thread alone) and from outside (on the whole team), by several threads at once.
// Scratch is the caller's (gemm_workspace); beside it oneDNN packs blocks in memory of its own. The summation order is oneDNN's:
// equal calls on an equal number of threads give equal bits.
#pragma once
#include "ir/dtype.hpp"
#include <cstdint>
#include <string>

namespace quadrille {

// C[m,n] = op(A) op(B) (+ bias[n]) (+ C if accumulate), where op(A)[m,k] is A[m,k], or A[k,m] read transposed, and
// op(B)[k,n] is B[k,n], or B[n,k] read transposed. Leading dimensions count elements between stored rows.
// Types: all f32; or A, B bf16 with C f32 or bf16, or the same with f16; bias of any of these. accumulate wants C in f32 and no bias.
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

// Bytes of workspace for a call made with up to `threads` OpenMP threads: blocks of 16-bit operands, widened. A few MiB a thread, none for
// f32 products. A function of sizes, types and transpositions alone, whatever the CPU.
std::int64_t gemm_workspace(const Gemm& g, int threads);

void gemm(const Gemm& g);

// C = op(A) op(B) + bias is the pre-activation, kept for the backward pass, and y = gelu(C) (tanh form) of the rounded C, in
// C's type and leading dimension. Done in blocks of rows, so that the gelu reads C from the cache. Not with accumulate.
void gemm_gelu(const Gemm& g, void* y);

// The library that does the products, with its version: "oneDNN 2.6.0".
std::string matrix_library();

}  // namespace quadrille
