// Errors, once for the whole program. Owns the exit codes and the two kinds of failure; catches nothing.
//
// The user's fault is an Error: a sentence with the number that is wrong and the one that would be right, and the exit code
// the process ends with. The programmer's fault is `require`, which names the place.
#pragma once
#include <fmt/core.h>
#include <stdexcept>
#include <string>

#include "base/location.hpp"

namespace quadrille {

// The process's exit codes, as the README documents them.
enum class Exit : int { done = 0, refused = 2, no_memory = 3, diverged = 4, io_failed = 5, rank_failed = 6, stopped = 75 };

// A failure that ends the job with `exit` and one message. May hold several sentences, one a line.
class Error : public std::runtime_error {
  public:
    Error(Exit exit, std::string message) : std::runtime_error(std::move(message)), exit_(exit) {}
    Exit exit() const { return exit_; }

  private:
    Exit exit_;
};

// How an exception of any kind ends the process: an Error as it says, refused memory (and a thread that could not be started) with
// no_memory, all else with rank_failed.
struct Failure {
    Exit exit;
    std::string message;
};
Failure failure_of(const std::exception&);

// Throws std::logic_error naming file and line unless `ok`. For what only a mistake in this program can break.
inline void require(bool ok, const char* what, Location at = Location::current()) {
    if (!ok) [[unlikely]]
        throw std::logic_error(fmt::format("{}:{}: {}", at.file_name(), at.line(), what));
}
inline void require(bool ok, const std::string& what, Location at = Location::current()) {
    require(ok, what.c_str(), at);
}

}  // namespace quadrille
