// config.json, which says what the tensors beside it are a model of. Owns its keys, their defaults in the reference library, and what of them this
// program's models cannot be.
#pragma once
#include "exchange/layout.hpp"
#include "ir/dtype.hpp"

#include <filesystem>
#include <optional>
#include <string>

namespace quadrille {

struct TheirModel {
    Family family = Family::gpt2;
    ModelConfig model;
};

// Throws Damaged where it is no JSON, and Error{refused} with a line for each key that is of a wrong type, or says what our models cannot be. A key
// that is missing has the default of the reference library's class.
TheirModel read_model_json(const std::filesystem::path& file);

// The file's text, for a model that the family holds; `dtype` of the tensors, `end_of_document` their eos_token_id.
std::string model_json(Family, const ModelConfig&, DType, std::optional<std::int64_t> end_of_document);

}  // namespace quadrille
