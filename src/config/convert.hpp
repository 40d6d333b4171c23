// One node of YAML → the value of one key, by the key's type, range and choices.
#pragma once
#include "config/keys.hpp"
#include "config/yaml_reader.hpp"

#include <string>

namespace quadrille::input {

// A value, or a sentence about what was found and what is allowed. `problem` empty: value holds.
struct Converted {
    Value value;
    std::string problem;
};

// Quotes make no difference, except that quoted words are never auto's or null's stand-ins for nothing (null, ~).
Converted convert(const Key& key, const Node& node);

// "found 'abc'", "found a list of 3": the node, short enough for a message.
std::string found(const Node& node);

}  // namespace quadrille::input
