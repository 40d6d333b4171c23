// Failures that all ranks share, and those of one. A rank that fails alone would leave the others waiting; these run a piece of set-up on every rank
// and end it alike on all.
#pragma once
#include "base/error.hpp"
#include "comm/world.hpp"

#include <functional>

namespace quadrille {

// Thrown on every rank with the same text, so it is printed once and the job ends in order.
struct SharedError : Error { using Error::Error; };

// Runs `work` on every rank; if it throws Error on any, or memory or a thread is refused there, throws SharedError with the lowest such rank's text
// on all. Collective.
void together(const Collectives&, const std::function<void()>& work);
// Runs `work` on rank 0 alone and returns its text on every rank; what it throws becomes a SharedError on all, likewise. Collective.
std::string on_first_rank(const Collectives&, const std::function<std::string()>& work);

// A failure of this rank alone must end all, whether or not it can be told of: the others would wait for it for ever. From any thread.
[[noreturn]] void end_alone(const World&, const std::exception&);

}  // namespace quadrille
