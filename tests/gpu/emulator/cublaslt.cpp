// Matrix products as cuBLASLt's documentation has them, made in double and rounded once. It checks what the documentation demands, and refuses what
// the library is not said to take; what the library refuses beside that, or takes beside that, is not seen here. In particular:
//   - types: f32 throughout, or one 16-bit type for A and B with D of the same or f32; C and D have one type and layout; alpha and beta are f32;
//   - a bias has D's type; the auxiliary matrix of gelu has rows of a multiple of 8 elements and, like the bias, begins at a multiple of 16 bytes;
//   - an algorithm serves the product that it was chosen for and no other, with pointers aligned as promised, and with the workspace that it said;
//   - a workspace begins at a multiple of 256 bytes and is garbage afterwards.
// The gelu is that of the sum before it is rounded.
#include "cublasLt.h"

#include "emulator/streams.hpp"
#include "kernels/arithmetic.hpp"

#include <cstring>
#include <optional>
#include <span>
#include <vector>

struct cublasLtContext {};

struct cublasLtMatrixLayoutOpaque_t {
    cudaDataType_t type;
    std::int64_t rows, cols, ld;
    friend bool operator==(const cublasLtMatrixLayoutOpaque_t&, const cublasLtMatrixLayoutOpaque_t&) = default;
};

struct cublasLtMatmulDescOpaque_t {
    cublasComputeType_t compute;
    cudaDataType_t scale;
    std::int32_t transposed_a = CUBLAS_OP_N, transposed_b = CUBLAS_OP_N;
    std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    const void* bias = nullptr;
    void* auxiliary = nullptr;
    std::int64_t auxiliary_ld = 0;

    bool has_bias() const { return (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0; }
    bool has_gelu() const { return (epilogue & CUBLASLT_EPILOGUE_GELU_AUX) == CUBLASLT_EPILOGUE_GELU_AUX; }
};

struct cublasLtMatmulPreferenceOpaque_t {
    std::uint64_t workspace = 0;
    std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
    std::uint32_t alignment[4] = {256, 256, 256, 256};
};

namespace {

using quadrille::bf16;
using quadrille::f16;
using Layout = cublasLtMatrixLayoutOpaque_t;
using Operation = cublasLtMatmulDescOpaque_t;

std::int64_t choices = 0;

std::uint64_t behind(const void* p, std::uint64_t bytes) { return reinterpret_cast<std::uintptr_t>(p) % bytes; }
std::int64_t bytes_of(cudaDataType_t t) { return t == CUDA_R_32F ? 4 : 2; }

double read(const void* p, cudaDataType_t t, std::int64_t i) {
    switch (t) {
        case CUDA_R_16BF: return quadrille::load(static_cast<const bf16*>(p)[i]);
        case CUDA_R_16F: return quadrille::load(static_cast<const f16*>(p)[i]);
        case CUDA_R_32F: break;
    }
    return static_cast<const float*>(p)[i];
}
void write(void* p, cudaDataType_t t, std::int64_t i, float x) {
    switch (t) {
        case CUDA_R_16BF: return quadrille::store(static_cast<bf16*>(p)[i], x);
        case CUDA_R_16F: return quadrille::store(static_cast<f16*>(p)[i], x);
        case CUDA_R_32F: return quadrille::store(static_cast<float*>(p)[i], x);
    }
}

// A product with its layouts, and what is wrong with it.
struct Product {
    Operation operation;
    Layout a, b, d;

    std::int64_t m() const { return d.rows; }
    std::int64_t n() const { return d.cols; }
    std::int64_t k() const { return operation.transposed_a == CUBLAS_OP_N ? a.cols : a.rows; }

    cublasStatus_t fault(const Layout& c) const {
        for (const Layout& x : {a, b, c, d})
            if (x.rows <= 0 || x.cols <= 0 || x.ld < x.rows) return CUBLAS_STATUS_INVALID_VALUE;
        const bool ta = operation.transposed_a == CUBLAS_OP_T, tb = operation.transposed_b == CUBLAS_OP_T;
        if ((ta ? a.cols : a.rows) != m() || (tb ? b.rows : b.cols) != n() || (tb ? b.cols : b.rows) != k() || c != d)
            return CUBLAS_STATUS_INVALID_VALUE;
        if (a.type != b.type || operation.scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
        if (a.type == CUDA_R_32F ? d.type != CUDA_R_32F : operation.compute != CUBLAS_COMPUTE_32F || (d.type != a.type && d.type != CUDA_R_32F))
            return CUBLAS_STATUS_NOT_SUPPORTED;
        return fault_of_epilogue();
    }
    cublasStatus_t fault_of_epilogue() const {
        if (operation.has_bias() && !operation.bias) return CUBLAS_STATUS_INVALID_VALUE;
        if (operation.has_bias() && behind(operation.bias, 16) != 0) return CUBLAS_STATUS_NOT_SUPPORTED;
        if (!operation.has_gelu()) return CUBLAS_STATUS_SUCCESS;
        if (!operation.auxiliary || operation.auxiliary_ld < m()) return CUBLAS_STATUS_INVALID_VALUE;
        return operation.auxiliary_ld % 8 != 0 || behind(operation.auxiliary, 16) != 0 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
    }

    // A number that stands for everything but the addresses.
    std::uint64_t digest() const {
        std::uint64_t h = 1469598103934665603u;
        for (const std::int64_t x : {std::int64_t{operation.compute}, std::int64_t{operation.transposed_a}, std::int64_t{operation.transposed_b},
                                     std::int64_t{operation.epilogue}, operation.auxiliary_ld, std::int64_t{a.type}, a.rows, a.cols, a.ld, b.rows,
                                     b.cols, b.ld, std::int64_t{d.type}, d.rows, d.cols, d.ld})
            h = (h ^ static_cast<std::uint64_t>(x)) * 1099511628211u;
        return h;
    }
};

// op(X) of rows x cols, by rows and in double.
std::vector<double> whole(const void* p, const Layout& x, bool transposed) {
    const std::int64_t rows = transposed ? x.cols : x.rows, cols = transposed ? x.rows : x.cols;
    std::vector<double> out(static_cast<std::size_t>(rows * cols));
    for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < cols; ++j)
            out[static_cast<std::size_t>(i * cols + j)] = read(p, x.type, transposed ? i * x.ld + j : j * x.ld + i);
    return out;
}

void multiply(const Product& p, double alpha, const void* pa, const void* pb, double beta, void* pd) {
    const std::vector<double> a = whole(pa, p.a, p.operation.transposed_a == CUBLAS_OP_T);
    const std::vector<double> bt = whole(pb, p.b, p.operation.transposed_b != CUBLAS_OP_T);  // [n, k], and so read the other way round
    std::vector<double> column(static_cast<std::size_t>(p.m()));
    for (std::int64_t j = 0; j < p.n(); ++j) {
        for (std::int64_t i = 0; i < p.m(); ++i) {
            const double *const x = a.data() + i * p.k(), *const y = bt.data() + j * p.k();
            double sum = 0.0;
#pragma omp simd reduction(+ : sum)
            for (std::int64_t l = 0; l < p.k(); ++l) sum += x[l] * y[l];
            column[static_cast<std::size_t>(i)] = alpha * sum;
        }
        for (std::int64_t i = 0; i < p.m(); ++i) {
            double x = column[static_cast<std::size_t>(i)];
            if (beta != 0.0) x += beta * read(pd, p.d.type, j * p.d.ld + i);
            if (p.operation.has_bias()) x += read(p.operation.bias, p.d.type, i);
            auto result = static_cast<float>(x);
            if (p.operation.has_gelu()) {
                write(p.operation.auxiliary, p.d.type, j * p.operation.auxiliary_ld + i, result);
                result = quadrille::gelu32(result);
            }
            write(pd, p.d.type, j * p.d.ld + i, result);
        }
    }
}

// Stores an attribute of this type.
template <class T>
cublasStatus_t put(T& to, const void* value, std::size_t bytes) {
    if (bytes != sizeof to || !value) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

// What an algorithm keeps of its choice.
enum Kept { of_product, of_workspace, of_alignments };

}  // namespace

std::int64_t quadrille::emulator::choices_of_algorithms() { return choices; }

const char* cublasLtGetStatusName(cublasStatus_t status) {
    switch (status) {
        case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
        case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
        case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
        case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    }
    return "?";
}
const char* cublasLtGetStatusString(cublasStatus_t) { return "as emulated"; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* made) { return *made = new cublasLtContext, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t x) { return delete x, CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType_t type, std::uint64_t rows, std::uint64_t cols,
                                          std::int64_t ld) {
    *made = new Layout{type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(cols), ld};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t x) { return delete x, CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t compute, cudaDataType_t scale) {
    *made = new Operation{compute, scale};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t x) { return delete x, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t x, cublasLtMatmulDescAttributes_t which, const void* value, std::size_t bytes) {
    switch (which) {
        case CUBLASLT_MATMUL_DESC_TRANSA: return put(x->transposed_a, value, bytes);
        case CUBLASLT_MATMUL_DESC_TRANSB: return put(x->transposed_b, value, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE: return put(x->epilogue, value, bytes);
        case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return put(x->bias, value, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return put(x->auxiliary, value, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return put(x->auxiliary_ld, value, bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
    return *made = new cublasLtMatmulPreferenceOpaque_t, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t x) { return delete x, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t x, cublasLtMatmulPreferenceAttributes_t which, const void* value,
                                                    std::size_t bytes) {
    switch (which) {
        case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return put(x->workspace, value, bytes);
        case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return put(x->reductions, value, bytes);
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
            return put(x->alignment[which - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
    ++choices;
    *found = 0;
    if (wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
    const Product p{*operation, *a, *b, *d};
    if (const cublasStatus_t fault = p.fault(*c); fault != CUBLAS_STATUS_SUCCESS) return fault;
    const auto& promised = preference->alignment;
    for (const auto& [alignment, type] : {std::pair{promised[0], a->type}, {promised[1], b->type}, {promised[2], c->type}, {promised[3], d->type}})
        if (static_cast<std::int64_t>(alignment) < bytes_of(type)) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (operation->has_gelu() && promised[3] < 16) return CUBLAS_STATUS_NOT_SUPPORTED;
    results[0] = {};
    results[0].workspaceSize = std::min<std::uint64_t>(preference->workspace, static_cast<std::uint64_t>(p.m() * p.n() * 4));
    results[0].state = CUBLAS_STATUS_SUCCESS;
    results[0].algo.data[of_product] = p.digest();
    results[0].algo.data[of_workspace] = results[0].workspaceSize;
    for (int i = 0; i < 4; ++i) results[0].algo.data[of_alignments + i] = promised[i];
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t library, cublasLtMatmulDesc_t operation, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm,
                              void* workspace, std::size_t workspace_bytes, cudaStream_t stream) {
    if (!library) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!operation || !alpha || !beta || !a || !b || !c || !d || c != d || !algorithm) return CUBLAS_STATUS_INVALID_VALUE;
    const Product p{*operation, *a_layout, *b_layout, *d_layout};
    if (const cublasStatus_t fault = p.fault(*c_layout); fault != CUBLAS_STATUS_SUCCESS) return fault;
    const std::uint64_t* const kept = algorithm->data;
    if (kept[of_product] != p.digest() || workspace_bytes < kept[of_workspace]) return CUBLAS_STATUS_INVALID_VALUE;
    if ((kept[of_workspace] > 0 && !workspace) || behind(workspace, 256) != 0) return CUBLAS_STATUS_INVALID_VALUE;
    const void* const pointers[] = {a, b, c, d};
    for (int i = 0; i < 4; ++i)
        if (behind(pointers[i], kept[of_alignments + i]) != 0) return CUBLAS_STATUS_INVALID_VALUE;
    float scale = 0, old = 0;
    std::memcpy(&scale, alpha, sizeof scale);
    std::memcpy(&old, beta, sizeof old);
    auto& streams = quadrille::emulator::streams();
    const auto held = streams.lock();
    CUstream_st* const on = streams.find(stream);
    if (!on) return CUBLAS_STATUS_INVALID_VALUE;
    streams.add(*on, {[=, used = kept[of_workspace]] {
                          std::memset(workspace, 0xFF, used);
                          multiply(p, scale, a, b, old, d);
                      },
                      nullptr});
    return CUBLAS_STATUS_SUCCESS;
}
