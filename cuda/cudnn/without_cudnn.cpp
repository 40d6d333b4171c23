// A build without cuDNN: no attention is cuDNN's.
#include "base/error.hpp"
#include "cuda/fused_attention.hpp"

namespace quadrille::cuda {

class FusedAttention::Plans {};

FusedAttention::FusedAttention() = default;
FusedAttention::~FusedAttention() = default;

std::int64_t FusedAttention::workspace(const AttentionShape&, DType, bool) const { return 0; }

void FusedAttention::forward(const Attention&, void*, float*, cudaStream_t) { require(false, "attention: built without cuDNN"); }

void FusedAttention::backward(const Attention&, const void*, const float*, const void*, void*, void*, void*, cudaStream_t) {
    require(false, "attention: built without cuDNN");
}

}  // namespace quadrille::cuda
