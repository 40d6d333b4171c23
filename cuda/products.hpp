// Matrix products by cuBLASLt, with as much of bias and gelu in the product's own epilogue as it takes. A bias that it does not take stands in C
// before, exactly, for C has its type or is f32, and the product is added to it, so that C is rounded once all the same; a gelu is a pass over C
// behind it. The algorithm of each shape is asked for once.
//
// cuBLASLt counts by columns: a row-major matrix is to it the transposed one, so it is given C' = B' A', whose memory is the same.
#pragma once
#include "cuda/kernels.hpp"

#include <cublasLt.h>

#include <cstdint>
#include <map>
#include <memory>

namespace quadrille {

namespace cuda {

// What cuBLASLt does beside the product.
struct Epilogue {
    bool bias = false, gelu = false;
    friend bool operator==(const Epilogue&, const Epilogue&) = default;
};

// In the order of preference, the last one always possible: a bias must have C's type, and for the gelu C and y must be of 16 bits in rows of whole
// 16 bytes. cuBLASLt's own gelu is the tanh form, by which approximation of tanh is not told: f32 keeps ours.
struct Epilogues {
    Epilogue form[3];
    int size = 0;
};
Epilogues epilogues(const Gemm&, const void* y);

// The largest power of two, up to 256, of which p is a multiple.
std::uint32_t alignment(const void* p);

// Every row of C = bias, or 0.
void fill_product(const Gemm&, cudaStream_t);
// y = gelu(C)
void gelu_of_product(const Gemm&, void* y, cudaStream_t);

// An object of cuBLASLt.
template <class T, cublasStatus_t (*destroy)(T*)>
struct Destroy {
    void operator()(T* p) const { destroy(p); }
};
template <class T, cublasStatus_t (*destroy)(T*)>
using Owned = std::unique_ptr<T, Destroy<T, destroy>>;

}  // namespace cuda

class CudaKernels::Products {
  public:
    // On the current device.
    explicit Products(bool tf32);
    // y: null for a product without gelu.
    void multiply(const Gemm&, void* y, cudaStream_t);

    // What cuBLASLt may use of the workspace.
    static std::int64_t library_bytes(const Gemm&);

  private:
    // All that an algorithm may depend on.
    struct Shape {
        std::int64_t m, n, k, lda, ldb, ldc;
        DType type, c_type, bias_type;
        bool a_transposed, b_transposed, accumulate, bias, gelu;
        std::uint32_t a_alignment, b_alignment, c_alignment, y_alignment, bias_alignment;
        friend auto operator<=>(const Shape&, const Shape&) = default;
    };
    struct Product {
        cuda::Owned<cublasLtMatmulDescOpaque_t, cublasLtMatmulDescDestroy> operation;
        cuda::Owned<cublasLtMatrixLayoutOpaque_t, cublasLtMatrixLayoutDestroy> a, b, c;
        cublasLtMatmulAlgo_t algorithm;
        cuda::Epilogue epilogue;
    };
    static Shape shape_of(const Gemm&, const void* y);
    const Product& product_of(const Gemm&, void* y);
    // Without an operation where cuBLASLt has no algorithm for it.
    Product find(const Gemm&, void* y, cuda::Epilogue) const;

    bool tf32_;
    cuda::Owned<cublasLtContext, cublasLtDestroy> library_;
    std::map<Shape, Product> products_;
};

}  // namespace quadrille
