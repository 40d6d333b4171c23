// From what was written to what is meant: every auto is derived, every path found, and what cannot be is a problem.
#pragma once
#include "config/config.hpp"
#include "config/load.hpp"
#include "config/problems.hpp"
#include "config/settings.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace quadrille::input {

// Where the input came from.
struct Origin {
    std::filesystem::path folder;  // absolute, for relative data paths
    std::string stem;              // NAME in output.directory
};

// The Config of `settings`, complete even where problems were added. Sentences about what is odd but allowed go to `warnings`.
Config resolve(const Settings& settings, const Origin& origin, const Job& job, Problems& problems,
               std::vector<std::string>& warnings);

// The parts of it, each in a file of its own.
void resolve_batch(Config& config, const Settings& settings, Problems& problems);
void resolve_paths(Config& config, const Settings& settings, const Origin& origin, const Job& job, Problems& problems,
                   std::vector<std::string>& warnings);

}  // namespace quadrille::input
