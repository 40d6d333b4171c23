// Typing rules of the kinds whose signature is not enough. Each throws TypingError with the reason.
#pragma once
#include "ir/table.hpp"

namespace quadrille {

using Types = std::vector<TensorType>;
using Inputs = std::span<const TensorType>;

inline void demand(bool ok, const char* why) {
    if (!ok) throw TypingError(why);
}
inline void demand(bool ok, const std::string& why) { demand(ok, why.c_str()); }

Types signature_rule(Tables&, const Op&, const Attributes&, Inputs);   // the common one
Types matmul_rule(Tables&, const Op&, const Attributes&, Inputs);      // x, w [, bias] -> y; matmul_gelu: -> z, gelu(z)
Types embedding_dw_rule(Tables&, const Op&, const Attributes&, Inputs);
Types attention_rule(Tables&, const Op&, const Attributes&, Inputs);   // q, k, v ... -> o, lse; backward: -> dq, dk, dv
Types accumulate_rule(Tables&, const Op&, const Attributes&, Inputs);  // running sum + running sum
Types mean_loss_rule(Tables&, const Op&, const Attributes&, Inputs);   // loss sum, 1/tokens -> loss
Types sum_squares_rule(Tables&, const Op&, const Attributes&, Inputs); // flat gradient -> scalar, Partial where pieces differ
Types update_rule(Tables&, const Op&, const Attributes&, Inputs);      // weights, gradient, norm, state... -> weights', state'...
Types compress_rule(Tables&, const Op&, const Attributes&, Inputs);     // gradient [, residual] -> packets [, what they leave unsent]
Types decompress_rule(Tables&, const Op&, const Attributes&, Inputs);   // packets -> this rank's slice of the sum
Types retain_rule(Tables&, const Op&, const Attributes&, Inputs);       // residual, what is unsent, norm -> residual', its squares
Types copy_rule(Tables&, const Op&, const Attributes&, Inputs);         // the same tensor in other memory
Types redistribute_rule(Tables&, const Op&, const Attributes&, Inputs);
Types move_rule(Tables&, const Op&, const Attributes&, Inputs);        // the same tensor in another tier
Types send_rule(Tables&, const Op&, const Attributes&, Inputs);
Types declared_rule(Tables&, const Op&, const Attributes&, Inputs);    // the types are the attributes'
Types split_rule(Tables&, const Op&, const Attributes&, Inputs);       // flat buffer -> views
Types join_rule(Tables&, const Op&, const Attributes&, Inputs);        // views -> flat buffer; zeroes the padding

}  // namespace quadrille
