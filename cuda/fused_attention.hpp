// cuDNN's fused attention, where the build has found cuDNN and its C++ frontend (cudnn/with_cudnn.cpp, or else cudnn/without_cudnn.cpp, which covers
// nothing). Owns the plan of each shape, made when it is first asked about; says what is covered. All else is for the kernels of attention*.cu.
//
// On an H100 cuDNN uses instructions that those kernels do not (wgmma, TMA), so it goes first where it covers the case.
#pragma once
#include "kernels/attention.hpp"

#include <cuda_runtime_api.h>

#include <memory>

namespace quadrille::cuda {

// Whether a call has a form that cuDNN computes as the interface says: plain causal attention. Dropout has its own random numbers there, positions
// and documents would be masks in memory, and results are neither merged, accumulated nor f32.
constexpr bool fused_form(const Attention& a, DType result, bool onto_result) {
    return a.in_order && !a.document_start && a.dropout.rate == 0 && !onto_result && result == a.type;
}
// Whether it does so for the shape.
constexpr bool fused_shape(const AttentionShape& shape, DType type) {
    return half_width(type) && shape.s == shape.t && shape.d % 8 == 0 && shape.d <= 128 && shape.n % shape.g == 0 && shape.b > 0 && shape.s > 0;
}
// A plan that wants more is not used: in a fixed order, gradients of q cost cuDNN 2 b n s t bytes on some devices.
constexpr std::int64_t most_fused_bytes = std::int64_t{1} << 30;

class FusedAttention {
  public:
    FusedAttention();
    ~FusedAttention();

    // Bytes of workspace for a shape; none if it is not covered, as none is where cuDNN does not open, which is said once.
    std::int64_t workspace(const AttentionShape&, DType, bool backward) const;
    bool covers(const AttentionShape& shape, DType type, bool backward) const { return workspace(shape, type, backward) > 0; }

    // As Kernels' functions, for what is covered.
    void forward(const Attention&, void* o, float* lse, cudaStream_t);
    void backward(const Attention&, const void* o, const float* lse, const void* d_o, void* dq, void* dk, void* dv, cudaStream_t);

  private:
    class Plans;
    std::unique_ptr<Plans> plans_;
};

// to[i, c, r] = from[i, r, c]: lse[b,s,n] and cuDNN's [b,n,s]. Not in place.
void turn_statistics(const float* from, float* to, std::int64_t count, std::int64_t rows, std::int64_t columns, cudaStream_t);

}  // namespace quadrille::cuda
