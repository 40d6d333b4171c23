// The kernels of a CUDA device, on one stream: CUDA C++ of our own, cuBLASLt for matrix products, cuDNN for attention where it covers the case.
//
// Calls put their work on the stream and return. Failures of CUDA and its libraries are thrown as Error with what was being done.
// Each group of functions is defined in the .cu file of its name.
#pragma once
#include "cuda/fused_attention.hpp"
#include "kernels/kernels.hpp"

#include <cuda_runtime_api.h>

#include <memory>

namespace quadrille {

struct CudaKernelsOptions {
    bool tf32 = false;  // products of f32 operands may round them to TF32
};

class CudaKernels final : public Kernels {
  public:
    // On the current device, whose stream it is; both outlive it.
    explicit CudaKernels(cudaStream_t stream, const CudaKernelsOptions& options = {});
    ~CudaKernels() override;

    // ---- matrix products
    void gemm(const Gemm&) override;
    void gemm_gelu(const Gemm&, void* y) override;
    std::int64_t gemm_workspace(const Gemm&) const override;

    // ---- attention
    void attention(const Attention&, void* o, DType o_type, float* lse, bool merge) override;
    void attention_dx(const Attention&, const void* o, const float* lse, const void* d_o, void* dq, void* dk, void* dv, DType grad_type,
                      bool accumulate) override;
    std::int64_t attention_workspace(const AttentionShape&, DType type, bool backward) const override;

    // ---- norms
    void norm(const Norm&, const void* x, const void* gain, const void* bias, void* y) override;
    void residual_norm(const Norm&, const void* x, const void* r, const void* gain, const void* bias, void* sum, void* y) override;
    void norm_dx(const Norm&, const void* x, const void* gain, const void* dy, void* dx) override;
    void norm_dw(const Norm&, const void* x, const void* dy, void* dgain, void* dbias, DType out_type, bool accumulate, void* workspace) override;
    std::int64_t norm_dw_workspace(const Norm&) const override;

    // ---- elementwise
    void add(const void* a, const void* b, void* y, std::int64_t count, DType) override;
    void add_bias(const void* x, const void* bias, void* y, std::int64_t rows, std::int64_t cols, DType) override;
    void scale(const void* x, double factor, void* y, std::int64_t count, DType) override;
    void gelu(const void* x, void* y, std::int64_t count, DType) override;
    void gelu_dx(const void* x, const void* dy, void* dx, std::int64_t count, DType) override;
    void swiglu(const void* gate, const void* up, void* y, std::int64_t count, DType) override;
    void swiglu_dx(const void* gate, const void* up, const void* dy, void* dgate, void* dup, std::int64_t count, DType) override;
    void dropout(const Dropout&, const void* x, void* y) override;
    void rotary(const Rotary&, const void* x, void* y) override;
    void cast(const void* src, DType src_type, void* dst, DType dst_type, std::int64_t count) override;
    void accumulate(const void* src, DType src_type, void* dst, DType dst_type, std::int64_t count) override;
    void zero(void* dst, std::int64_t bytes) override;
    void gather(const void* from, std::span<const Extent> extents, std::int64_t element_bytes, void* to) override;
    void repeat(const std::int64_t* values, std::int64_t count, std::int64_t rows, std::int32_t* to) override;

    // ---- sums
    void column_sum(const void* dy, DType dy_type, void* db, DType db_type, std::int64_t rows, std::int64_t cols, bool accumulate,
                    void* workspace) override;
    std::int64_t column_sum_workspace(std::int64_t rows, std::int64_t cols) const override;
    void sum_squares(const void* g, DType, std::span<const Extent> stretches, double* sum, void* workspace) override;
    std::int64_t sum_squares_workspace(std::int64_t count, std::int64_t stretches) const override;

    // ---- embeddings
    void embedding(const Embedding&, const std::int32_t* ids, const void* table, void* y, DType) override;
    void embedding_dw(const Embedding&, const std::int32_t* ids, const void* dy, DType dy_type, void* dtable, DType dtable_type,
                      bool accumulate, void* workspace) override;
    std::int64_t embedding_dw_workspace(const Embedding&) const override;

    // ---- loss
    void logit_max(const Logits&, const void* logits, float* max) override;
    void logit_sums(const Logits&, const void* logits, const float* max, const std::int32_t* target, float* sums) override;
    void logit_sums_dx(const Logits&, const void* logits, const float* max, const std::int32_t* target, const float* dsums, void* dlogits) override;
    void token_loss(std::int64_t tokens, const float* sums, const std::uint8_t* mask, double* loss, bool accumulate) override;
    void token_loss_dx(std::int64_t tokens, const float* sums, const std::uint8_t* mask, const double* dloss, float* dsums) override;

    // ---- numbers of the step
    void count(std::span<const MaskPart> parts, double* total, bool accumulate) override;
    void reciprocal(const double* x, double* y) override;
    void multiply(const double* a, const double* b, double* y) override;

    // ---- updates
    void adamw(std::span<const ParameterSlice> slices, const AdamW&, const Clip&) override;
    void sgd(std::span<const ParameterSlice> slices, const Sgd&, const Clip&) override;

    // ---- compressed gradients
    void compress(const Compress&, std::byte* packets) override;
    void decompress(const Packing&, const std::byte* packets, std::int64_t n, void* sum, DType type, std::int64_t count) override;
    void retain(float* residual, const float* unsent, std::int64_t count, const double* norm2, double* squares, void* workspace) override;

  private:
    class Products;   // cuBLASLt and the algorithm of each shape

    cudaStream_t stream_;
    CudaKernelsOptions options_;
    std::unique_ptr<Products> products_;
    cuda::FusedAttention fused_;
};

}  // namespace quadrille
