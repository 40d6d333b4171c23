// The combinations of keys that cannot be: what does not divide, what excludes what.
#pragma once
#include "config/config.hpp"
#include "config/problems.hpp"
#include "config/settings.hpp"

namespace quadrille::input {

// Adds a problem for every rule that the resolved input breaks, each with the numbers that disagree.
void check(const Config& config, const Settings& settings, Problems& problems);

}  // namespace quadrille::input
