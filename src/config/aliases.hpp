// What users of other trainers write, for the hints in error messages: none of these names is accepted as a key. Owns the
// table of foreign names (Megatron-LM, DeepSpeed, Hugging Face, nanotron, torchtitan, GPT-NeoX, nanoGPT, llm.c) and the
// nearest-name search.
#pragma once
#include "config/keys.hpp"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quadrille::input {

// What a foreign name is called here: a key's path, and a remark (how to convert, or why there is no such key).
struct Alias {
    std::string_view foreign;  // lower case, underscores; may be dotted: zero_optimization.stage
    std::string_view key;      // empty: there is none
    std::string_view remark;
};

// What a foreign value is called here, where a key has that choice.
struct ChoiceAlias {
    std::string_view foreign, ours;  // ours empty: nothing that is here, though it looks like it
};

std::span<const Alias> aliases();
std::span<const ChoiceAlias> choice_aliases();
std::span<const ChoiceAlias> target_aliases();  // `ours` as in a list: attention.q, attention.k

// The alias of a dotted path, of its last two names, or of its last; null if there is none.
const Alias* find_alias(std::string_view path);

// What to say to someone who wrote the unknown key `path`: "; did you mean …?", or nothing.
std::string key_hint(std::string_view path);

// The same for a value that is none of a key's choices.
std::string choice_hint(const Key& key, std::string_view value);

// The same for a target of adapters that names no matrix.
std::string target_hint(std::string_view target);

// The candidate at the least edit distance (insertions, deletions, replacements and swaps of neighbours), if at most a third of the
// letters differ.
std::optional<std::string> nearest(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace quadrille::input
