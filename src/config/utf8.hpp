// UTF-8, as far as an input file needs it: telling it from other encodings, and counting characters.
#pragma once
#include <string>
#include <string_view>

namespace quadrille::input {

// Bytes of the character that begins at `at`; 0 if none does (RFC 3629: no overlong forms, surrogates or codes above 10FFFF).
inline int utf8_length(std::string_view text, std::size_t at) {
    const auto byte = [&](std::size_t i) { return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u; };
    const auto continues = [&](std::size_t i) { return (byte(i) & 0xC0u) == 0x80u; };
    const unsigned first = byte(0);
    if (first < 0x80) return 1;
    if (first >= 0xC2 && first <= 0xDF) return continues(1) ? 2 : 0;
    if (first >= 0xE0 && first <= 0xEF) {
        if ((first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F)) return 0;
        return continues(1) && continues(2) ? 3 : 0;
    }
    if (first >= 0xF0 && first <= 0xF4) {
        if ((first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) > 0x8F)) return 0;
        return continues(1) && continues(2) && continues(3) ? 4 : 0;
    }
    return 0;
}

inline bool is_utf8(std::string_view text) {
    for (std::size_t i = 0; i < text.size();) {
        const int length = utf8_length(text, i);
        if (length == 0) return false;
        i += static_cast<std::size_t>(length);
    }
    return true;
}

// Characters of valid UTF-8.
inline int characters(std::string_view text) {
    int count = 0;
    for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0u) != 0x80u;
    return count;
}

// At most `most` bytes of it, cut between characters and marked with "…" if shorter than the whole.
inline std::string shortened(std::string_view text, std::size_t most) {
    if (text.size() <= most) return std::string(text);
    while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0u) == 0x80u) --most;
    return std::string(text.substr(0, most)) + "…";
}

}  // namespace quadrille::input
