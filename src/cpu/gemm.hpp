// Matrix products on the CPU, by oneDNN (2.6 and 3.x), which only gemm.cpp and gemm_native.cpp use.
//
// Row-major, any leading dimension, f32 or bf16 storage, f32 accumulation. May be called from inside an OpenMP parallel
// region (the product then runs on the calling thread alone) and from outside (on the whole team), by several threads at once.
// Scratch belongs to the threads and is kept: a few MiB each, none for plain f32 products. The summation order is oneDNN's: equal
// calls on an equal number of threads give equal bits.
#pragma once
#include "ir/dtype.hpp"
#include <cstdint>
#include <string>

namespace quadrille {

// C[m,n] = op(A) op(B) (+ bias[n]) (+ C if accumulate), where op(A)[m,k] is A[m,k], or A[k,m] read transposed, and
// op(B)[k,n] is B[k,n], or B[n,k] read transposed. Leading dimensions count elements between stored rows.
// Types: all f32; or A, B bf16 with C f32 or bf16, bias f32 or bf16. accumulate wants C in f32 and no bias.
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
};

void gemm(const Gemm& g);

// C = op(A) op(B) + bias is the pre-activation, kept for the backward pass, and y = gelu(C) (tanh form) of the rounded C, in
// C's type and leading dimension. Done in blocks of rows, so that the gelu reads C from the cache. Not with accumulate.
void gemm_gelu(const Gemm& g, void* y);

// The library that does the products, with its version: "oneDNN 2.6.0".
std::string matrix_library();

}  // namespace quadrille
