// The one way to stderr: what is said, in which form, and that a stream that takes nothing changes nothing.
#include "base/say.hpp"

#include <doctest.h>

#include <string>

using namespace quadrille;

namespace {

std::string said(std::string_view message) {
    std::FILE* file = std::tmpfile();
    say(message, file);
    std::rewind(file);
    std::string text(1000, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), file));
    std::fclose(file);
    return text;
}

}  // namespace

TEST_CASE("a message has the program's name and ends its line") {
    CHECK(said("no such file") == "quadrille: no such file\n");
    CHECK(said("two lines:\n\tthe second, naïve") == "quadrille: two lines:\n\tthe second, naïve\n");
}

TEST_CASE("control characters are shown, not sent") {
    CHECK(said("\x1b[31mred\r\x7f") == "quadrille: \\x1B[31mred\\x0D\\x7F\n");
    CHECK(said(std::string_view("a\0b", 3)) == "quadrille: a\\x00b\n");
}

TEST_CASE("a stream that takes nothing is no failure") {
    std::FILE* full = std::fopen("/dev/full", "w");
    if (full == nullptr) return;  // a system without it
    say("lost", full);
    CHECK(!put(std::string(100000, 'x'), full));
    std::fclose(full);
}
