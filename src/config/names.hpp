// The spellings of the input file's choices, in the order of their enums.
#pragma once
#include "config/config.hpp"

#include <array>
#include <string_view>

namespace quadrille {

using Word = std::string_view;
constexpr std::array<Word, 2> spellings(Normalization) { return {"layernorm", "rmsnorm"}; }
constexpr std::array<Word, 2> spellings(Activation) { return {"gelu", "swiglu"}; }
constexpr std::array<Word, 3> spellings(PositionEmbedding) { return {"learned", "rope", "none"}; }
constexpr std::array<Word, 2> spellings(SequenceMethod) { return {"ring", "ulysses"}; }
constexpr std::array<Word, 2> spellings(SequenceLayout) { return {"zigzag", "contiguous"}; }
constexpr std::array<Word, 4> spellings(Schedule) { return {"gpipe", "1f1b", "interleaved", "zero-bubble"}; }
constexpr std::array<Word, 3> spellings(Granularity) { return {"none", "selective", "full"}; }
constexpr std::array<Word, 3> spellings(Precision) { return {"fp32", "bf16", "fp16"}; }
constexpr std::array<Word, 3> spellings(OffloadTo) { return {"none", "cpu", "nvme"}; }
constexpr std::array<Word, 5> spellings(CompressionMethod) { return {"none", "bf16", "fp16", "topk", "qsgd"}; }
constexpr std::array<Word, 2> spellings(OnNan) { return {"stop", "skip"}; }
constexpr std::array<Word, 2> spellings(OptimizerType) { return {"adamw", "sgd"}; }
constexpr std::array<Word, 4> spellings(LrSchedule) { return {"constant", "linear", "cosine", "wsd"}; }
constexpr std::array<Word, 5> spellings(CollectiveAlgorithm) { return {"auto", "ring", "shared", "hierarchical", "native"}; }
constexpr std::array<Word, 5> spellings(DataFormat) { return {"text", "tokens", "llmc", "megatron", "synthetic"}; }
constexpr std::array<Word, 2> spellings(TokenType) { return {"uint16", "uint32"}; }

// How the input file spells a choice: spelling(Schedule::one_f_one_b) is "1f1b".
template <class E>
constexpr Word spelling(E choice) {
    return spellings(choice)[static_cast<std::size_t>(choice)];
}

}  // namespace quadrille
