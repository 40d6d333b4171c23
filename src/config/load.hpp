// From an input file to a Config, and back to text. Owns the rules of the input file: every problem of the file and of the
// overrides is found in one pass and thrown as one Error. Reads files only to look up the paths of data; makes none.
#pragma once
#include "config/config.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace quadrille {

// What the input file cannot know: the job it is loaded for. Zero means unknown.
struct Job {
    std::int64_t ranks = 0;             // of MPI, or `plan --ranks`; unknown: grid.dp auto becomes 1
    int ranks_per_node = 1;             // the most on any node; they share its memory
    int cpus = 0;                       // CPUs in a rank's affinity mask, the fewest of any rank
    int cpu_sharers = 1;                // ranks of a node whose masks overlap, the most that any rank meets, itself included
    std::int64_t memory_available = 0;  // bytes on the node: the smaller of the cgroup's limit and the available memory
    bool planning = true;               // a plan needs neither the data files nor a memory limit
};

// Reads `path` ("-": standard input), applies the overrides ("section.key=value"), checks all of it and resolves every auto.
// Throws Error{refused} with one line per problem: `file:line:column: section.key: what was found, what is allowed`.
// What is odd but allowed is appended to `warnings`, a sentence each. Not collective: one rank loads, the others
// get the text of `to_yaml` and call `parse_resolved`.
Config load_config(const std::string& path, const std::vector<std::string>& overrides, const Job& job,
                   std::vector<std::string>* warnings = nullptr);

// The same of a text instead of a file: `name` is what messages call it, and relative paths are looked for in the working directory.
Config load_config_text(const std::string& text, const std::string& name, const std::vector<std::string>& overrides, const Job& job,
                        std::vector<std::string>* warnings = nullptr);

// The overrides given, less those that the new ones replace.
std::vector<std::string> merged_overrides(const std::vector<std::string>& given, const std::vector<std::string>& more);

// The resolved input: every key, as YAML. load_config of this text gives an equal Config, whose text is identical.
std::string to_yaml(const Config& config);

// The same for people, a few lines: of each section the keys that can vary. Several files of data are a count and their bytes, for which it looks
// at the files.
std::string in_short(const Config& config);

// The Config of a text that `to_yaml` made, without looking at files or the machine; throws Error{refused} for any other text.
Config parse_resolved(const std::string& text);

// The section `model` of the resolved input, which is all that the checkpoint of an import says.
std::string model_section(const Config& config);

// As parse_resolved, also of a text that `model_section` made; then only `model` is of that text.
Config parse_resolved_model(const std::string& text);

// The text of inputs/reference.yaml: every key with its default and a comment. The test config_print writes that file.
std::string reference_yaml();

}  // namespace quadrille
