// YAML text → a tree of nodes that know their place. Owns everything about the syntax: encodings, tabs, aliases, merge keys,
// several documents. Scalars keep their text as written, since only the key they belong to knows whether `no` or `1e3` is a
// word or a number. Aliased nodes are shared, never copied, so a bomb of aliases costs no memory.
#pragma once
#include "config/problems.hpp"

#include <memory>
#include <string>
#include <vector>

namespace quadrille::input {

struct Node;
using NodePtr = std::shared_ptr<const Node>;

struct Entry {
    std::string key;
    Place place;  // of the key
    NodePtr value;
};

struct Node {
    enum class Kind { scalar, list, map };
    Kind kind = Kind::scalar;
    Place place;
    std::string text;            // scalar, without quotes
    bool quoted = false;         // scalar: written in quotes, or tagged !!str
    std::vector<NodePtr> items;  // list
    std::vector<Entry> entries;  // map, in order, duplicates kept

    // A plain `null`, `~` or nothing at all.
    bool is_null() const;
};

// The one document of `text`, which came from `source` (0: the file, else the number of an override). Null, with a problem
// added, where it is no YAML, no text in UTF-8, empty, or several documents.
NodePtr read_yaml(const std::string& text, int source, Problems& problems);

}  // namespace quadrille::input
