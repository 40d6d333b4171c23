// The choice and the call of cuBLASLt's products (cuda/products.hpp). Kernels of our own around them are in gemm.cu.
#include "base/rounding.hpp"
#include "cuda/error.hpp"
#include "cuda/library_workspace.hpp"
#include "cuda/products.hpp"

#include <algorithm>
#include <utility>

namespace quadrille {
namespace cuda {

Epilogues epilogues(const Gemm& g, const void* y) {
    const bool bias = g.bias && g.bias_type == g.c_type && alignment(g.bias) >= 16;
    const bool gelu = y && half_width(g.c_type) && g.ldc % 8 == 0 && std::min(alignment(g.c), alignment(y)) >= 16 && (bias || !g.bias);
    Epilogues out;
    for (const Epilogue e : {Epilogue{bias, gelu}, Epilogue{bias, false}, Epilogue{}})
        if (out.size == 0 || out.form[out.size - 1] != e) out.form[out.size++] = e;
    return out;
}

std::uint32_t alignment(const void* p) {
    const auto address = reinterpret_cast<std::uintptr_t>(p) | 256u;
    return static_cast<std::uint32_t>(address & (~address + 1));
}

namespace {

std::string text(const Gemm& g, const void* y) {
    return fmt::format("the product of {} [{}, {}]{} and [{}, {}]{} to {} [{}, {}]{}{}{}", name_of(g.a_type), g.m, g.k,
                       g.a_transposed ? " transposed" : "", g.k, g.n, g.b_transposed ? " transposed" : "", name_of(g.c_type), g.m, g.n,
                       g.bias ? " with bias" : "", y ? " and gelu" : "", g.accumulate ? ", accumulated" : "");
}

[[noreturn]] void fail(cublasStatus_t status, const std::string& what) {
    throw Error(Exit::rank_failed, fmt::format("cuBLASLt: {}: {}: {}", what, cublasLtGetStatusName(status), cublasLtGetStatusString(status)));
}
void check(cublasStatus_t status, const char* what) {
    if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]]
        fail(status, what);
}

cudaDataType_t type_of(DType t) { return t == DType::bf16 ? CUDA_R_16BF : t == DType::f16 ? CUDA_R_16F : CUDA_R_32F; }

template <class T>
void set(cublasLtMatmulDescOpaque_t* operation, cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value), "an attribute of a product");
}
template <class T>
void set(cublasLtMatmulPreferenceOpaque_t* preference, cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value), "an attribute of a choice of algorithms");
}

// A row-major matrix of which `row` elements of each row count, as cuBLASLt sees it.
auto layout(DType t, std::int64_t rows, std::int64_t row, std::int64_t ld) {
    cublasLtMatrixLayout_t out = nullptr;
    check(cublasLtMatrixLayoutCreate(&out, type_of(t), static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(rows), ld), "a matrix");
    return Owned<cublasLtMatrixLayoutOpaque_t, cublasLtMatrixLayoutDestroy>(out);
}

cublasLtEpilogue_t name_of_epilogue(Epilogue e) {
    if (e.gelu) return e.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    return e.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

// The addresses that belong to the operation. Which algorithms there are depends on their alignment.
void set_addresses(cublasLtMatmulDescOpaque_t* operation, const Gemm& g, Epilogue e) {
    if (e.bias) set(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, g.bias);
    if (e.gelu) set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, g.c);
}

// The product's own result: y where gelu is part of it, and C is kept beside.
void* result_of(const Gemm& g, void* y, Epilogue e) { return e.gelu ? y : g.c; }

}  // namespace
}  // namespace cuda

using namespace cuda;

CudaKernels::Products::Products(bool tf32) : tf32_(tf32) {
    cublasLtHandle_t library = nullptr;
    check(cublasLtCreate(&library), "starting the library");
    library_.reset(library);
}

// What NVIDIA advises for Hopper, but not more than 32 sums of the whole C in f32, of which a split of k would need one for each of its parts.
std::int64_t CudaKernels::Products::library_bytes(const Gemm& g) {
    constexpr std::int64_t most = std::int64_t{32} << 20, parts = 32;
    if (g.k == 0) return 0;
    return std::min(most, aligned_up(parts * g.m * g.n * bytes_of(DType::f32), 256));
}

CudaKernels::Products::Shape CudaKernels::Products::shape_of(const Gemm& g, const void* y) {
    return {g.m, g.n, g.k, g.lda, g.ldb, g.ldc, g.a_type, g.c_type, g.bias_type, g.a_transposed, g.b_transposed, g.accumulate, g.bias != nullptr,
            y != nullptr, alignment(g.a), alignment(g.b), alignment(g.c), alignment(y), alignment(g.bias)};
}

CudaKernels::Products::Product CudaKernels::Products::find(const Gemm& g, void* y, Epilogue e) const {
    Product p;
    p.epilogue = e;
    p.a = layout(g.b_type, g.b_transposed ? g.n : g.k, g.b_transposed ? g.k : g.n, g.ldb);
    p.b = layout(g.a_type, g.a_transposed ? g.k : g.m, g.a_transposed ? g.m : g.k, g.lda);
    p.c = layout(g.c_type, g.m, g.n, g.ldc);
    cublasLtMatmulDesc_t made = nullptr;
    check(cublasLtMatmulDescCreate(&made, tf32_ && g.a_type == DType::f32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F),
          "a product");
    p.operation.reset(made);
    set(made, CUBLASLT_MATMUL_DESC_TRANSA, g.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(made, CUBLASLT_MATMUL_DESC_TRANSB, g.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(made, CUBLASLT_MATMUL_DESC_EPILOGUE, name_of_epilogue(e));
    if (e.gelu) set(made, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, g.ldc);
    set_addresses(made, g, e);

    cublasLtMatmulPreference_t chosen = nullptr;
    check(cublasLtMatmulPreferenceCreate(&chosen), "a choice of algorithms");
    const Owned<cublasLtMatmulPreferenceOpaque_t, cublasLtMatmulPreferenceDestroy> preference(chosen);
    set(chosen, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(library_bytes(g)));
    // Parts of a split k are added in fp32, so that a 16-bit C is rounded once.
    set(chosen, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    set(chosen, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(g.b));
    set(chosen, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(g.a));
    set(chosen, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(result_of(g, y, e)));
    set(chosen, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(result_of(g, y, e)));

    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(library_.get(), made, p.a.get(), p.b.get(), p.c.get(), p.c.get(), chosen, 1, &best, &found);
    if (status != CUBLAS_STATUS_SUCCESS && status != CUBLAS_STATUS_NOT_SUPPORTED) fail(status, "choosing an algorithm for " + text(g, y));
    if (status != CUBLAS_STATUS_SUCCESS || found == 0 || best.state != CUBLAS_STATUS_SUCCESS) return {};
    p.algorithm = best.algo;
    return p;
}

const CudaKernels::Products::Product& CudaKernels::Products::product_of(const Gemm& g, void* y) {
    const Shape shape = shape_of(g, y);
    if (const auto known = products_.find(shape); known != products_.end()) return known->second;
    const Epilogues forms = epilogues(g, y);
    for (int i = 0; i < forms.size; ++i)
        if (Product p = find(g, y, forms.form[i]); p.operation) return products_.emplace(shape, std::move(p)).first->second;
    throw Error(Exit::rank_failed, fmt::format("cuBLASLt: it has no algorithm for {} with leading dimensions {}, {} and {}", text(g, y), g.lda, g.ldb,
                                               g.ldc));
}

void CudaKernels::Products::multiply(const Gemm& g, void* y, cudaStream_t stream) {
    require_types(g);
    if (g.m == 0 || g.n == 0) return;
    if (g.k == 0) {  // of nothing summed there is the bias and what C had
        if (!g.accumulate) fill_product(g, stream);
        if (y) gelu_of_product(g, y, stream);
        return;
    }
    require(g.workspace != nullptr, "gemm: a product on a GPU needs workspace");
    const Product& p = product_of(g, y);
    const bool filled = g.bias && !p.epilogue.bias;
    if (filled) fill_product(g, stream);
    set_addresses(p.operation.get(), g, p.epilogue);
    const float one = 1.0f, old = g.accumulate || filled ? 1.0f : 0.0f;
    void* const out = result_of(g, y, p.epilogue);
    const cublasStatus_t status = cublasLtMatmul(library_.get(), p.operation.get(), &one, g.b, p.a.get(), g.a, p.b.get(), &old, out, p.c.get(), out,
                                                 p.c.get(), &p.algorithm, place_for_library(g.workspace), static_cast<std::size_t>(library_bytes(g)),
                                                 stream);
    if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]]
        fail(status, text(g, y));
    if (y && !p.epilogue.gelu) gelu_of_product(g, y, stream);
}

CudaKernels::CudaKernels(cudaStream_t stream, const CudaKernelsOptions& options)
    : stream_(stream), options_(options), products_(std::make_unique<Products>(options.tf32)) {}

CudaKernels::~CudaKernels() = default;

void CudaKernels::gemm(const Gemm& g) { products_->multiply(g, nullptr, stream_); }

void CudaKernels::gemm_gelu(const Gemm& g, void* y) {
    require(!g.accumulate, "gemm_gelu: accumulate is not meant here");
    products_->multiply(g, y, stream_);
}

std::int64_t CudaKernels::gemm_workspace(const Gemm& g) const { return bytes_for_library(Products::library_bytes(g)); }

}  // namespace quadrille
