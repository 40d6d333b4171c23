// What a device does to tensors: one function per kind of op, the same on every device. This header is the room's front door and the whole of what
// is known of a device's arithmetic above it; CpuKernels (cpu/kernels.hpp) and CudaKernels (cuda/kernels.hpp) implement it.
//
// Pointers are to memory of the device, but for descriptions (the structs, the spans), which are the caller's and may go when the call returns. On a
// device with a queue a call puts its work there and returns; what it was handed must stay as it is until the work is done. Buffers are packed and
// row-major where nothing else is said; element types are f32, bf16 or f16 where nothing else is said; arithmetic is fp32, each result rounded once.
// In-place use (y = x) is allowed where it is said. Same arguments, same bits, on the same device, whatever runs beside; sums have a fixed order,
// which is the device's own: only what is elementwise has the same bits on all (kernels/arithmetic.hpp).
//
// No collectives, no allocation: scratch is the caller's, as many bytes as the *_workspace of the same name says, 64-byte aligned, of this call
// alone; its contents are of no account before and after. Throw logic_error on element types that no device has, and Error{rank_failed} where a
// device's library fails.
#pragma once
#include "ir/extents.hpp"
#include "kernels/attention.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/embedding.hpp"
#include "kernels/gemm.hpp"
#include "kernels/loss.hpp"
#include "kernels/norm.hpp"
#include "kernels/optimizer.hpp"
#include "kernels/packets.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace quadrille {

// Of count: so many bytes of a mask.
struct MaskPart {
    const std::uint8_t* mask = nullptr;
    std::int64_t count = 0;
};

class Kernels {
  public:
    virtual ~Kernels() = default;

    // ---- matrix products (kernels/gemm.hpp)
    virtual void gemm(const Gemm&) = 0;
    // C = op(A) op(B) + bias is the pre-activation, kept for the backward pass, and y = gelu(C) (tanh form) of C as it was just before it
    // was rounded or just after, in C's type and leading dimension. Not with accumulate.
    virtual void gemm_gelu(const Gemm&, void* y) = 0;
    // A function of sizes, types and transpositions alone; of gemm_gelu too.
    virtual std::int64_t gemm_workspace(const Gemm&) const = 0;

    // ---- attention (kernels/attention.hpp)
    // o[b,s,n,d] = softmax(q kᵀ / √d) v over the keys given, and lse[b,s,n], the natural log of the softmax's denominator
    // (without dropout). A query that sees no key gets o = 0 and lse = -inf.
    // merge: o (o_type must be f32) and lse hold the result over other keys, and the new one is combined with it exactly.
    virtual void attention(const Attention&, void* o, DType o_type, float* lse, bool merge) = 0;
    // Gradients of q, k, v. o and lse are the final ones, over all keys of all turns; d_o[b,s,n,d] and o have the type of q.
    // A kv head's gradient is the sum over its query heads. grad_type is f32 or 16-bit; accumulate (f32 only) adds to what dq
    // [b,s,n,d], dk and dv [b,t,g,d] hold.
    virtual void attention_dx(const Attention&, const void* o, const float* lse, const void* d_o, void* dq, void* dk, void* dv, DType grad_type,
                              bool accumulate) = 0;
    virtual std::int64_t attention_workspace(const AttentionShape&, DType type, bool backward) const = 0;

    // ---- norms (kernels/norm.hpp). Statistics are recomputed from x in the backward pass, never stored.
    // bias may be null. y may be x.
    virtual void norm(const Norm&, const void* x, const void* gain, const void* bias, void* y) = 0;
    // sum = x + r, rounded to t; y = norm(sum). sum may be x or r.
    virtual void residual_norm(const Norm&, const void* x, const void* r, const void* gain, const void* bias, void* sum, void* y) = 0;
    // dx of y = norm(x) given dy. dx may be dy, not x.
    virtual void norm_dx(const Norm&, const void* x, const void* gain, const void* dy, void* dx) = 0;
    // dgain[h] = sum over rows of dy xhat, dbias[h] = sum over rows of dy (null: not wanted); + the old value if accumulate. Both in
    // out_type.
    virtual void norm_dw(const Norm&, const void* x, const void* dy, void* dgain, void* dbias, DType out_type, bool accumulate, void* workspace) = 0;
    virtual std::int64_t norm_dw_workspace(const Norm&) const = 0;

    // ---- elementwise; in place allowed
    // y = a + b; also f64
    virtual void add(const void* a, const void* b, void* y, std::int64_t count, DType) = 0;
    // y[rows,cols] = x[rows,cols] + bias[cols]
    virtual void add_bias(const void* x, const void* bias, void* y, std::int64_t rows, std::int64_t cols, DType) = 0;
    // y = factor x, the factor rounded to fp32; also f64, the factor as it is
    virtual void scale(const void* x, double factor, void* y, std::int64_t count, DType) = 0;
    // y = gelu(x) = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))      (Hendrycks and Gimpel 2016, tanh form)
    virtual void gelu(const void* x, void* y, std::int64_t count, DType) = 0;
    // dx = dy gelu'(x); dx may be dy or x
    virtual void gelu_dx(const void* x, const void* dy, void* dx, std::int64_t count, DType) = 0;
    // y = silu(gate) up, silu(z) = z / (1 + exp(-z))                    (Shazeer 2020, eq. 6)
    virtual void swiglu(const void* gate, const void* up, void* y, std::int64_t count, DType) = 0;
    // dgate = dy up silu'(gate), dup = dy silu(gate)
    virtual void swiglu_dx(const void* gate, const void* up, const void* dy, void* dgate, void* dup, std::int64_t count, DType) = 0;
    // y = x keep / (1 - rate), keep = keeps(key, (sample global_s + position) global_h + channel): the same mask on every grid. Linear
    // and diagonal, so it is its own backward: dx = dropout(dy).
    virtual void dropout(const Dropout&, const void* x, void* y) = 0;
    // Rotates the pairs (i, i + d/2) of x[b,s,n,d] by the angle position[s] base^(-2i/d)   (Su et al. 2021, the half-split form of
    // GPT-NeoX and Llama). d is even. inverse rotates back, which is the backward pass. Angles are taken in double: right at any position.
    virtual void rotary(const Rotary&, const void* x, void* y) = 0;
    // dst = src, rounded to dst_type. Equal types copy the bits.
    virtual void cast(const void* src, DType src_type, void* dst, DType dst_type, std::int64_t count) = 0;
    // dst += src, added in fp32 and rounded to dst_type
    virtual void accumulate(const void* src, DType src_type, void* dst, DType dst_type, std::int64_t count) = 0;
    // Zero bytes.
    virtual void zero(void* dst, std::int64_t bytes) = 0;
    // The extents of `from`, in elements of so many bytes, one behind the other. No overlap.
    virtual void gather(const void* from, std::span<const Extent> extents, std::int64_t element_bytes, void* to) = 0;
    // to[rows, count] = values[count], each row the same
    virtual void repeat(const std::int64_t* values, std::int64_t count, std::int64_t rows, std::int32_t* to) = 0;

    // ---- sums
    // db[cols] = sum over rows of dy[rows,cols] (+ db if accumulate). f32 sums over blocks of rows, blocks added in order.
    // dy and db have each its own type.
    virtual void column_sum(const void* dy, DType dy_type, void* db, DType db_type, std::int64_t rows, std::int64_t cols, bool accumulate,
                            void* workspace) = 0;
    virtual std::int64_t column_sum_workspace(std::int64_t rows, std::int64_t cols) const = 0;
    // *sum = sum of g^2 over these stretches of elements, in float64: blocks of 1024 elements of a stretch are summed each for itself, then added in
    // order.
    virtual void sum_squares(const void* g, DType, std::span<const Extent> stretches, double* sum, void* workspace) = 0;
    // For so many stretches of so many elements in all.
    virtual std::int64_t sum_squares_workspace(std::int64_t count, std::int64_t stretches) const = 0;

    // ---- embeddings (kernels/embedding.hpp)
    // y[tokens,h] = table[ids - first_row], or 0 where the id is not in this rank's rows. table and y have one type.
    virtual void embedding(const Embedding&, const std::int32_t* ids, const void* table, void* y, DType) = 0;
    // dtable[rows,h] (+)= sum of dy[i] over the tokens i with that id, tokens in ascending order. Without accumulate the table is zeroed first.
    virtual void embedding_dw(const Embedding&, const std::int32_t* ids, const void* dy, DType dy_type, void* dtable, DType dtable_type,
                              bool accumulate, void* workspace) = 0;
    virtual std::int64_t embedding_dw_workspace(const Embedding&) const = 0;

    // ---- loss (kernels/loss.hpp)
    // max[tokens]; -infinity if the rank has no real column.
    virtual void logit_max(const Logits&, const void* logits, float* max) = 0;
    // sums[2,tokens] from the whole row's max; sums[1] is 0 where the target (a global column) is another rank's.
    virtual void logit_sums(const Logits&, const void* logits, const float* max, const std::int32_t* target, float* sums) = 0;
    // dlogits[tokens,columns] = dsums[0] exp(logit - max) + dsums[1] [column is the target]; padding gets 0. May be in place over
    // logits. max is a constant: its gradient cancels.
    virtual void logit_sums_dx(const Logits&, const void* logits, const float* max, const std::int32_t* target, const float* dsums,
                               void* dlogits) = 0;
    // *loss = sum over tokens with mask != 0, in a fixed order, of log(sums[0]) - sums[1] (+ *loss if accumulate). Not divided by the count.
    virtual void token_loss(std::int64_t tokens, const float* sums, const std::uint8_t* mask, double* loss, bool accumulate) = 0;
    // dsums[2,tokens] = *dloss times the derivative of token_loss: (1/sums[0], -1), or 0 where mask is 0.
    virtual void token_loss_dx(std::int64_t tokens, const float* sums, const std::uint8_t* mask, const double* dloss, float* dsums) = 0;

    // ---- numbers of the step, float64
    // *total = how many bytes are not 0 (+ *total if accumulate)
    virtual void count(std::span<const MaskPart> parts, double* total, bool accumulate) = 0;
    // *y = 1 / *x; of 0: 0
    virtual void reciprocal(const double* x, double* y) = 0;
    // *y = *a *b
    virtual void multiply(const double* a, const double* b, double* y) = 0;

    // ---- updates (kernels/optimizer.hpp), of all slices at once; nothing where the norm is not finite
    virtual void adamw(std::span<const ParameterSlice> slices, const AdamW&, const Clip&) = 0;
    virtual void sgd(std::span<const ParameterSlice> slices, const Sgd&, const Clip&) = 0;

    // ---- compressed gradients (kernels/packets.hpp)
    virtual void compress(const Compress&, std::byte* packets) = 0;
    // sum[i] = 0 + x_0[i] + x_1[i] + ... in fp32, in the order of so many packets that lie one behind the other, rounded once to `type`.
    virtual void decompress(const Packing&, const std::byte* packets, std::int64_t n, void* sum, DType type, std::int64_t count) = 0;
    // residual = unsent where norm2 is finite, else it stays; *squares = the sum of the residual's squares, as sum_squares makes it.
    virtual void retain(float* residual, const float* unsent, std::int64_t count, const double* norm2, double* squares, void* workspace) = 0;
};

}  // namespace quadrille
