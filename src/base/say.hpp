// The one way to stderr. Invariant: nothing here throws. What cannot be said is not said, for a log on a full disk is no reason to end a run,
// least of all to end one rank of it. Decides nothing of who speaks.
#pragma once
#include <cstdio>
#include <string_view>

namespace quadrille {

// "quadrille: MESSAGE" and the end of the line, in one piece. Control characters are shown ("\x1B") but for ends of lines and tabs: a message may
// repeat what a user, or a file's name, has brought in.
void say(std::string_view message, std::FILE* to = stderr) noexcept;

// The text as it is; whether all of it was taken.
bool put(std::string_view text, std::FILE* to) noexcept;

}  // namespace quadrille
