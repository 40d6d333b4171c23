#include "base/say.hpp"

#include <string>

namespace quadrille {
namespace {

void append_printable(std::string& text, std::string_view message) {
    constexpr const char* digits = "0123456789ABCDEF";
    for (const char c : message) {
        const auto code = static_cast<unsigned char>(c);
        const bool control = (code < 0x20 && c != '\n' && c != '\t') || code == 0x7F;
        if (!control) text += c;
        else (text += "\\x") += {digits[code / 16], digits[code % 16]};
    }
}

}  // namespace

void say(std::string_view message, std::FILE* to) noexcept {
    constexpr std::string_view name = "quadrille: ";
    try {
        std::string text(name);
        append_printable(text, message);
        text += '\n';
        put(text, to);
    } catch (...) {  // no memory for a copy
        put(name, to);
        put(message, to);
        put("\n", to);
    }
    std::fflush(to);
}

bool put(std::string_view text, std::FILE* to) noexcept { return std::fwrite(text.data(), 1, text.size(), to) == text.size(); }

}  // namespace quadrille
