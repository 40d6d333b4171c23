// The planner: reads compiled programs and says what a run will take, without running anything.
#pragma once
#include "plan/costs.hpp"

namespace quadrille {

// Bytes of training state on one rank, by what it is; counted from the buffers where it is kept.
struct StateBytes { std::int64_t weights = 0, masters = 0, moments = 0, residuals = 0, gradients = 0; };

// One distinct program: all ranks with this pp coordinate run it.
struct ProgramPlan {
    Coordinate first;                             // of its first rank
    std::int64_t count = 0;                       // ranks that share it
    std::int64_t operations = 0, layers = 0;
    std::array<TierPeak, tier_count> peaks{};
    std::string peak_op;                          // at which the device peak stands, as `plan --program` prints it
    StateBytes states;
    std::int64_t parameters = 0;                  // that a rank computes with, without padding
    std::map<std::string, std::int64_t> wire;     // axis -> bytes per rank and step, of the first rank
    std::map<std::string, std::int64_t> uncompressed;  // the wire if no gradient were compressed
    std::map<std::string, std::int64_t> copies;   // queue -> bytes per rank and step between tiers
};

// What recompute saves and costs, against the same input with recompute.granularity none, compiled beside it.
struct RecomputePlan {
    std::string granularity;
    std::int64_t bytes_saved = 0;                 // device peak of the fullest rank, without less with
    double flops_added = 0;                       // per step, whole job
};

// A change of the input that would make it fit, compiled and checked.
struct Suggestion {
    std::string change;                           // overrides, ready to be pasted
    std::array<std::int64_t, tier_count> peak_bytes{};  // by tier, on its fullest rank
    double cost = 1;                              // step_cost, relative to the input as it is
};

struct Plan {
    std::int64_t parameters = 0, trained = 0, ranks = 0;
    std::vector<ProgramPlan> programs;
    double model_flops = 0, hardware_flops = 0;   // per step, whole job
    RecomputePlan recompute;
    std::string homes;                            // of the training state, in words
    int staleness = 0;                            // of the gradients that updates use, in steps
    std::string compression;                      // of gradients, in words; empty: none is compressed
    int threads = 1;                              // device.threads, whose scratch the buffers book has; `train` may resolve auto to another number
    std::string schedule;
    std::vector<std::string> orders;              // of the pipeline, one per pp coordinate
    std::int64_t microbatches = 0;
    double bubble_fraction = 0;                   // with the FLOPs of each chunk as its costs
    std::int64_t memory_limit = 0, host_memory_limit = 0;  // 0: none
    bool fits = true;
    std::string shortfall;                        // why not: of each tier that does not, does_not_fit of the fullest rank
    double cost = 0;                              // step_cost, where it does not fit
    std::vector<Suggestion> suggestions;
};

// The input with further overrides, checked and resolved; throws Error where that is not possible.
using Variation = std::function<Config(const std::vector<std::string>&)>;

// Compiles and verifies the whole grid. Where a tier does not fit its limit, looks through `vary`, if there is one, for changes that would make it
// fit, which may take longer than the plan itself. Throws Error{refused} where the model does not fit the grid, and logic_error if a program is
// unsound. `programs`, if given, gets the compiled programs.
Plan make_plan(const Config&, const Workspace&, const Variation& vary, std::vector<Program>* programs = nullptr);

std::string figures(const Plan&);                 // for people: all but the suggestions
std::string text(const Plan&);                    // with these, where it does not fit
std::string json(const Plan&);                    // one object, as the interface has it

// Of the whole model: true sizes, without padding; replicated and tied parameters once. `trained`: only those that are.
std::int64_t parameter_count(const std::vector<Parameter>&, bool trained = false);

// Whether each tier keeps to its limit, where there is one.
bool fits(const Program&, const DeviceConfig&);

// Bytes that a tier of a rank may take, and what says so.
struct Budget {
    std::int64_t bytes = 0;
    std::string by;
};
// Why a program does not fit: the ledger at its peak, the op, the largest tensors.
std::string does_not_fit(const Program&, Tier, const Budget&, std::int64_t rank);
// One proposal a line; without any, that none was found.
std::string advice(const std::vector<Suggestion>&);

// The higher of two peaks; the second may be null.
const TierPeak& higher_peak(const TierPeak&, const TierPeak*);

}  // namespace quadrille
