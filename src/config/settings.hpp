// What the file and the overrides say, key by key, before anything is derived. Owns the finding of unknown, misplaced and
// duplicate keys and of wrong types; an override takes the place of what the file says.
#pragma once
#include "config/keys.hpp"
#include "config/problems.hpp"
#include "config/yaml_reader.hpp"

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace quadrille::input {

class Settings {
  public:
    // Adds the sections of a document; what is wrong goes to `problems`.
    void collect(const Node& document, Problems& problems);
    // Adds "section.key=value", the override of that number (from 1).
    void collect_override(const std::string& text, int number, Problems& problems);

    // Whether the key has a value of its own: written, sound, and not auto or null.
    bool given(std::string_view path) const;
    // Whether what was written is unusable, so that nothing should be concluded from the key.
    bool broken(std::string_view path) const;
    // Where the key was written; nowhere in particular if it was not.
    Place place(std::string_view path) const;
    bool written(std::string_view path) const { return places_.find(path) != places_.end(); }
    const Value& value(std::string_view path) const { return values_.find(path)->second; }

    // Puts every given value into its place in `config`.
    void apply(Config& config) const;

  private:
    void forget(const std::string& group);
    void collect_map(const Node& map, const std::string& prefix, Problems& problems);
    void collect_entry(const Entry& entry, const std::string& path, Problems& problems);
    void collect_value(const Key& key, const Node& node, Place written, Problems& problems);
    void collect_unknown(const Entry& entry, const std::string& path, int depth, Problems& problems) const;

    std::map<std::string, Value, std::less<>> values_;
    std::map<std::string, Place, std::less<>> places_;
    std::set<std::string, std::less<>> broken_;
};

}  // namespace quadrille::input
