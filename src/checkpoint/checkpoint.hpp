// A checkpoint as a run finds it: which there are, what one says of the training, whether it is whole, and its way into a run's memory.
//
// One is a folder, checkpoint.directory/step-00000100, with the file checkpoint.h5 in it: the parameters in fp32 and the optimizer's moments, each
// in its global shape, whatever the grid, ZeRO stage, precision or offload of the run that wrote it, and what each rank has of sums that are yet to
// be made: compressed gradients' residuals, stale gradients. Every byte of the file is under a checksum, and those of HDF5's own structures are
// checked before HDF5 sees them. Nothing here writes (saver.hpp does) or decides what a run goes on with.
//
// Calls that take the ranks (Collectives) are collective over all of them; they throw SharedError, alike on all ranks.
#pragma once
#include "comm/agree.hpp"
#include "runtime/state.hpp"

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace quadrille {

// Where a training stands: after step `step`, before the next one's data.
struct TrainingPoint {
    std::int64_t step = 0;          // steps made, skipped updates among them
    std::int64_t updates = 0;       // updates made: AdamW's bias correction counts them
    std::int64_t sequences = 0;     // consumed of the data, in its order, over all epochs
    std::uint64_t seed = 0;         // train.seed: of dropout and the data's order
    double loss_scale = 1;          // fp16
    std::int64_t good_steps = 0;    // in a row since the scale last changed
    bool follows_a_step = false;    // stale gradients, if any, are those of step `step`, and the next step's update uses them
    std::string config_yaml;        // the resolved input of the run that wrote it; an import's: its section model
    std::string version, git_commit;  // of the program that wrote it; filled when saved
    bool operator==(const TrainingPoint&) const = default;
};

// One dataset of a checkpoint, such as /optimizer/m/layers.0.attention.q.weight: fp32, row-major, without gaps.
struct StoredTensor {
    std::string path;
    std::vector<std::int64_t> shape;
    std::int64_t offset = 0, bytes = 0;  // in the file
    std::uint64_t checksum = 0;          // XXH3-64 of these bytes
};

struct Checkpoint {
    std::filesystem::path folder;       // .../step-00000100
    TrainingPoint point;
    std::vector<StoredTensor> tensors;  // in the file's order
    std::uint64_t checksum = 0;         // XXH3-64 of all tensors' checksums, 8 bytes each, in the order of their paths

    std::filesystem::path file() const { return folder / "checkpoint.h5"; }
    const StoredTensor* find(const std::string& path) const;  // nullptr: it has none of this name
};

// The folders of steps in `directory` by their names, the newest (highest) step first, whole or not. Empty where there is no directory. Throws
// Error{io_failed} where it cannot be listed. Not collective.
std::vector<std::filesystem::path> steps_in(const std::filesystem::path& directory);

// "PATH holds no checkpoint: ...", and where a run's are that keeps its own beneath it. Not collective.
std::string no_checkpoint_in(const std::filesystem::path& path);

// The step that a folder's name says; -1 for no such name.
std::int64_t step_of(const std::filesystem::path& folder);

struct Found {
    std::optional<Checkpoint> checkpoint;  // the newest whole one
    std::vector<std::string> passed_over;  // a sentence for each newer one, with file and reason
};

// resume: auto. Looks in `directory`, newest first, until one is whole: each is read to its end, once over all ranks. None where there is none, or
// none is whole: passed_over tells. SharedError{refused} where not all ranks see what rank 0 sees; {io_failed} where one cannot be read just now,
// which is not damage: a run that passed it over for that would do its steps again.
Found find_newest(const Collectives&, const std::filesystem::path& directory);

// resume: PATH, a folder that holds a checkpoint, whatever its name, a link to one, or the parent of steps' folders. SharedError{refused} where it is
// missing, holds none, or is not seen by all ranks; {io_failed} where the step is damaged, or all of the parent's are, with file and reason.
Found open_checkpoint(const Collectives&, const std::filesystem::path& path);

// Throws Error{refused} unless the checkpoint holds this program's model: each parameter but an adapter's, in its shape. Pure.
void check_model(const Checkpoint&, const Program& training);

struct LoadSettings {
    std::map<std::string, std::string> hints = {};        // checkpoint.hints, for MPI-IO
    std::int64_t most_bytes = std::int64_t{64} << 20;     // that a rank moves in one call, where the memory is there
};

// What the checkpoint could not say, which is as `initialize` has left it, and what it said in vain.
struct Loaded {
    std::vector<std::string> fresh_parameters;  // adapters that the checkpoint is without
    std::vector<std::string> fresh_moments;     // trained parameters whose moments it is without: of an SGD run, or once frozen
    std::vector<std::string> fresh_residuals;   // compressed parameters whose residuals it is without
    bool fresh_stale = false;                   // it is without stale gradients that this program has
    std::vector<std::string> unused;            // its parameters that this model is without: adapters
    std::vector<std::string> lost_residuals;    // parameters whose residuals this program has no place for
    bool lost_stale = false;                    // nor for its stale gradients
    struct Terms { std::int64_t there = 0, here = 0; } terms;  // ranks with terms of their own, where there were others: they were added up
    std::int64_t bytes = 0;                     // read by all ranks together
    double seconds = 0;
};

// Fills weights, fp32 masters, moments, residuals and stale gradients of the state that `initialize` has made, in every tier: what the run's types
// round from fp32, every holder of a piece has alike; where as many ranks have terms of a sum as saved them, each gets its own back, else they share
// them (load.cpp). Between steps: passes through memory of the arena that holds nothing then. Throws Error{refused} as check_model, and
// Error{io_failed} with the file's name, both alike on all ranks.
Loaded load(const Collectives&, const Checkpoint&, const Program& training, const Coordinate&, Arena&, const LoadSettings& = {});

}  // namespace quadrille
