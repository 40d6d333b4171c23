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

}  // namespace quadrille
