// The table of the input file's keys. It alone says what is a key, what type and range it has, what it is when left out and
// where its value goes; parsing, checking, the resolved input and inputs/reference.yaml are all read off it.
#pragma once
#include "config/config.hpp"

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace quadrille::input {

// A key's value. Nothing: the key's word (auto or null), whose meaning the resolution knows.
using Value = std::variant<std::monostate, bool, std::int64_t, double, std::string, std::vector<std::string>,
                           std::vector<std::int64_t>, std::vector<double>, std::map<std::string, std::string>>;

enum class KeyType {
    boolean,   // bool
    integer,   // int64
    bytes,     // int64
    number,    // double
    choice,    // string, one of `choices`
    text,      // string
    paths,     // list of strings; a single one may stand for a list of one
    integers,  // list of int64
    weights,   // list of doubles, written as text with commas
    order,     // list of strings: the axes, written with dashes
    map,       // names and texts
};

struct Range {
    double least = -std::numeric_limits<double>::infinity(), most = std::numeric_limits<double>::infinity();
    bool above_least = false, below_most = false;  // whether the bound itself is left out
};

// Where a value lives in Config.
struct Binding {
    std::function<Value(const Config&)> get;
    std::function<void(Config&, const Value&)> set;  // empty: the value has no place, since there is one only
    std::function<void(Config&)> leave_open;         // to what stands there for the key's word; empty: the word means the default
};

struct Key {
    std::string section, name;  // name may be dotted: compression.method
    KeyType type = KeyType::text;
    std::string fallback;              // when left out, as written in YAML
    std::string comment;               // one line
    std::string word;                  // "auto" or "null" where that is allowed beside the type
    Range range;                       // numbers; for lists, of each element
    std::vector<std::string> choices;  // that this build has
    bool or_path = false;              // choice: any other text is one too, a path
    std::vector<std::string> later;    // known values that this build has not
    bool fixed = false;                // only the default is in this build
    Binding binding;

    std::string path() const { return section + "." + name; }
    bool live() const { return !fixed && !(type == KeyType::choice && choices.size() == 1); }
};

// All keys, section by section, in the order of the documentation.
const std::vector<Key>& keys();
const Key* find_key(std::string_view path);
std::vector<std::string> sections();

// "fp32 | bf16", "an integer from 1 to 8, or auto": what the key takes, for error messages and comments.
std::string allowed(const Key& key);

// A value as YAML; `indent` is that of its key, for lists and mappings that take a line per entry.
std::string value_text(const Key& key, const Value& value, const std::string& indent = "");

}  // namespace quadrille::input
