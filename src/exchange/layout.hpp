// Where the parameters of our models are in those of the reference library: one table of names and forms for each family. Owns the families and what
// they can say; reads and writes nothing.
//
// Names, orders and heads are theirs; values are never changed but by rounding. Their rotary pairs channels i and i + head_dim/2, as ours does, so
// queries and keys are exchanged as they are. GPT-2 keeps a matrix as y = x w ("Conv1D"), [in, out], and q, k and v in one.
#pragma once
#include "config/config.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace quadrille {

enum class Family { gpt2, llama };
std::string_view name_of(Family);  // as config.json's model_type

// One of our parameters, as a matrix [out, in]; a bias, or a norm's weight, is [out, 1].
struct OurPart {
    std::string name;                 // layers.0.attention.q.weight
    std::vector<std::int64_t> shape;  // as in a checkpoint
    std::int64_t out = 0, in = 1;
    std::int64_t before = 0;          // rows of the parts before it in the same tensor
};

// One tensor of theirs: our parts below each other, [outs, in], and transposed, [in, outs], if it says so.
struct TheirTensor {
    std::string name;                 // transformer.h.0.attn.c_attn.weight
    std::vector<std::int64_t> shape;
    std::vector<OurPart> parts;
    bool transposed = false;
    std::int64_t outs() const { return parts.back().before + parts.back().out; }
    std::int64_t elements() const { return outs() * parts.back().in; }
};

// The family that can hold the model. Throws Error{refused} with what each family wants of it.
Family family_of(const ModelConfig&);

// Every parameter of the model, each in one tensor; in the order of the model. Throws std::logic_error where the family cannot hold it.
std::vector<TheirTensor> layout_of(Family, const ModelConfig&);

// The name without the prefix that a file may be without: wte.weight for transformer.wte.weight.
std::string_view bare_name(Family, std::string_view name);

// Whether a tensor that layout_of does not have may be left alone: a buffer of the architecture, or the head of a model whose head is the embedding.
bool may_be_left(Family, const ModelConfig&, std::string_view name);

// ---- values ----
// Puts rows first_row, ... of a part into the whole tensor.
void place_rows(const TheirTensor&, const OurPart&, std::int64_t first_row, const std::vector<float>& rows, std::vector<float>& tensor);

// Takes a part out of rows first, ... of a transposed tensor, [.., outs], into the whole part.
void take_columns(const TheirTensor&, const OurPart&, std::int64_t first, const std::vector<float>& rows, std::vector<float>& part);

}  // namespace quadrille
