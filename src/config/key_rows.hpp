// Makers of the rows of the table of keys: path, default, what is allowed, place in Config, comment.
#pragma once
#include "config/binding.hpp"
#include "config/keys.hpp"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quadrille::input::rows {

using bindings::bind;
using bindings::bind_or_word;

inline Key row(std::string_view path, KeyType type, std::string fallback, Binding binding, std::string comment) {
    const std::size_t dot = path.find('.');
    Key key;
    key.section = path.substr(0, dot);
    key.name = path.substr(dot + 1);
    key.type = type;
    key.fallback = std::move(fallback);
    key.binding = std::move(binding);
    key.comment = std::move(comment);
    const bool chosen = type == KeyType::choice;  // a word among the choices is one of them
    if (!chosen && (key.fallback == "auto" || key.fallback == "null")) key.word = key.fallback;
    return key;
}
inline Key flag(std::string_view path, std::string fallback, Binding binding, std::string comment) {
    return row(path, KeyType::boolean, std::move(fallback), std::move(binding), std::move(comment));
}
inline Key number_of(KeyType type, std::string_view path, std::string fallback, Range range, Binding binding, std::string comment) {
    Key key = row(path, type, std::move(fallback), std::move(binding), std::move(comment));
    key.range = range;
    return key;
}
inline Key integer(std::string_view path, std::string fallback, Range range, Binding binding, std::string comment) {
    return number_of(KeyType::integer, path, std::move(fallback), range, std::move(binding), std::move(comment));
}
inline Key bytes(std::string_view path, std::string fallback, Range range, Binding binding, std::string comment) {
    return number_of(KeyType::bytes, path, std::move(fallback), range, std::move(binding), std::move(comment));
}
inline Key number(std::string_view path, std::string fallback, Range range, Binding binding, std::string comment) {
    return number_of(KeyType::number, path, std::move(fallback), range, std::move(binding), std::move(comment));
}
template <class S, class M>
M type_of(M S::*);  // of a member
template <auto Section, auto Member>
Key choice(std::string_view path, std::string comment, std::vector<std::string> later = {}) {
    using E = decltype(type_of(Member));
    const Config defaults;
    Key key =
        row(path, KeyType::choice, std::string(spelling((defaults.*Section).*Member)), bind<Section, Member>(), std::move(comment));
    for (const std::string_view word : spellings(E{})) key.choices.emplace_back(word);
    key.later = std::move(later);
    return key;
}
// A choice between auto and names for the same thing: `resolved` is what it comes to.
inline Key settled(std::string_view path, std::vector<std::string> choices, std::string resolved, std::vector<std::string> later,
                   std::string comment) {
    Key key = row(path, KeyType::choice, choices[0], {[resolved](const Config&) { return resolved; }, {}, {}}, std::move(comment));
    key.choices = std::move(choices);
    key.later = std::move(later);
    return key;
}
// One of these words, or a path.
inline Key word_or_path(std::string_view path, std::vector<std::string> words, Binding binding, std::string comment) {
    Key key = row(path, KeyType::choice, words[0], std::move(binding), std::move(comment));
    key.word.clear();
    key.choices = std::move(words);
    key.or_path = true;
    return key;
}
// A key with one value only in this build.
inline Key fixed(std::string_view path, KeyType type, std::string fallback, std::string comment) {
    Key key = row(path, type, std::move(fallback), {}, std::move(comment));
    key.fixed = true;
    return key;
}
inline Key one_choice(std::string_view path, std::string only, std::vector<std::string> later, std::string comment) {
    Key key = row(path, KeyType::choice, only, {}, std::move(comment));
    key.choices = {only};
    key.later = std::move(later);
    return key;
}
inline Key with(Key key, std::vector<std::string> later) {
    key.later = std::move(later);
    return key;
}
inline Key or_word(Key key, std::string word) {
    key.word = std::move(word);
    return key;
}
inline Range from(double least, double most) { return {least, most, false, false}; }
inline Range above(double least, double most) { return {least, most, true, false}; }
inline Range below(double least, double most) { return {least, most, false, true}; }

}  // namespace quadrille::input::rows
