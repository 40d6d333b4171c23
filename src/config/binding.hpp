// From a member of Config to a Binding: bind<&Config::model, &ModelConfig::num_layers>(). The member's type decides the
// conversion. What stands for a key's word in Config (0, an empty list, no value) becomes nothing in a Value.
#pragma once
#include "base/error.hpp"
#include "config/keys.hpp"
#include "config/names.hpp"

#include <concepts>
#include <type_traits>

namespace quadrille::input::bindings {

inline Value to_value(bool x) { return x; }
inline Value to_value(double x) { return x; }
inline Value to_value(const std::string& x) { return x; }
inline Value to_value(const std::vector<std::string>& x) { return x; }
inline Value to_value(const std::map<std::string, std::string>& x) { return x; }
template <std::integral T>
Value to_value(T x) { return static_cast<std::int64_t>(x); }
template <class E>
    requires std::is_enum_v<E>
Value to_value(E x) { return std::string(spelling(x)); }
inline Value to_value(const std::optional<std::int64_t>& x) { return x ? Value(*x) : Value(); }
inline Value to_value(const std::vector<double>& x) { return x.empty() ? Value() : Value(x); }
inline Value to_value(const std::vector<int>& x) {
    return x.empty() ? Value() : Value(std::vector<std::int64_t>(x.begin(), x.end()));
}

inline void from_value(const Value& v, bool& x) { x = std::get<bool>(v); }
inline void from_value(const Value& v, double& x) { x = std::get<double>(v); }
inline void from_value(const Value& v, std::string& x) { x = std::get<std::string>(v); }
inline void from_value(const Value& v, std::vector<std::string>& x) { x = std::get<std::vector<std::string>>(v); }
inline void from_value(const Value& v, std::map<std::string, std::string>& x) { x = std::get<std::map<std::string, std::string>>(v); }
template <std::integral T>
void from_value(const Value& v, T& x) { x = static_cast<T>(std::get<std::int64_t>(v)); }
template <class E>
    requires std::is_enum_v<E>
void from_value(const Value& v, E& x) {
    const auto& words = spellings(E{});
    for (std::size_t i = 0; i < words.size(); ++i)
        if (words[i] == std::get<std::string>(v)) {
            x = static_cast<E>(i);
            return;
        }
    require(false, "a choice in the table of keys has no enum value: " + std::get<std::string>(v));
}
inline void from_value(const Value& v, std::optional<std::int64_t>& x) { x = std::get<std::int64_t>(v); }
inline void from_value(const Value& v, std::vector<double>& x) { x = std::get<std::vector<double>>(v); }
inline void from_value(const Value& v, std::vector<int>& x) {
    const auto& from = std::get<std::vector<std::int64_t>>(v);
    x.assign(from.begin(), from.end());
}

template <auto Section, auto Member>
Binding bind() {
    return {[](const Config& c) { return to_value((c.*Section).*Member); },
            [](Config& c, const Value& v) { from_value(v, (c.*Section).*Member); }, {}};
}

// The same where 0, an empty text or an empty list in Config stands for the key's word.
template <auto Section, auto Member>
Binding bind_or_word() {
    Binding binding = bind<Section, Member>();
    binding.get = [](const Config& c) {
        const auto& x = (c.*Section).*Member;
        return x == std::remove_cvref_t<decltype(x)>{} ? Value() : to_value(x);
    };
    binding.leave_open = [](Config& c) { (c.*Section).*Member = {}; };
    return binding;
}

}  // namespace quadrille::input::bindings
