// Vocabulary-parallel cross-entropy in three ops with moves between them (Shoeybi et al. 2019, section 3):
//   max[t]    = largest logit                                  logit_max,  then all-reduce max
//   sums[0,t] = sum over columns of exp(logit - max),
//   sums[1,t] = logit of the target - max                      logit_sums, then all-reduce sum
//   loss      = sum over counted tokens of log(sums[0]) - sums[1]     token_loss
// Statistics are f32, the loss float64. A rank holds columns [first_column, first_column + columns) of the vocabulary, of which the
// first real_columns are below the true vocabulary size; the rest is padding: never read, gradient 0.
// A token whose mask is 0 has loss and gradient exactly 0, whatever its logits hold.
#pragma once
#include "ir/dtype.hpp"
#include <cstdint>

namespace quadrille {

struct Logits {
    std::int64_t tokens = 0, columns = 0;            // the local block [tokens, columns], packed
    std::int64_t real_columns = 0;                   // 0 .. columns
    std::int64_t first_column = 0;                   // global index of column 0
    DType t = DType::f32;
};

// max[tokens]; -infinity if the rank has no real column.
void logit_max(const Logits& l, const void* logits, float* max);

// sums[2,tokens] from the whole row's max; sums[1] is 0 where the target (a global column) is another rank's.
void logit_sums(const Logits& l, const void* logits, const float* max, const std::int32_t* target, float* sums);

// Sum over tokens with mask != 0, in token order, of log(sums[0]) - sums[1]. Not divided by the count.
double token_loss(std::int64_t tokens, const float* sums, const std::uint8_t* mask);

// dsums[2,tokens] = dloss times the derivative of token_loss: (1/sums[0], -1), or 0 where mask is 0.
void token_loss_dx(std::int64_t tokens, const float* sums, const std::uint8_t* mask, double dloss, float* dsums);

// dlogits[tokens,columns] = dsums[0] exp(logit - max) + dsums[1] [column is the target]; padding gets 0. May be in place over
// logits. max is a constant: its gradient cancels.
void logit_sums_dx(const Logits& l, const void* logits, const float* max, const std::int32_t* target, const float* dsums,
                   void* dlogits);

}  // namespace quadrille
