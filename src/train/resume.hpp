// Where a run begins: afresh, or with a checkpoint that is looked for before anything is allocated. Owns the meaning of checkpoint.resume and what is
// told of it; whether two inputs fit together config/difference.hpp knows, what is whole the room checkpoint.
#pragma once
#include "checkpoint/checkpoint.hpp"
#include "config/config.hpp"
#include "data/batch.hpp"

#include <optional>
#include <string>
#include <vector>

namespace quadrille {

struct Start {
    std::optional<Checkpoint> checkpoint;      // whose state is loaded
    bool resumes = false;                      // goes on from it; else it gives the weights alone, under new adapters
    bool own = false;                          // it lies in this run's checkpoint.directory
    bool passed_over = false;                  // newer ones are damaged
    std::vector<std::filesystem::path> seen;   // the steps in checkpoint.directory before they were looked at; rank 0's
    TrainingPoint point;                       // where the loop begins
    double load_seconds = 0;                   // that loading has taken
    std::vector<std::string> notes, warnings;  // to be printed, on rank 0

    DataPosition data() const { return {point.step, point.sequences}; }
};

// Looks at nothing of the input that `settle` may yet decide. Collective over all ranks, which see the same checkpoint or are refused. Throws
// SharedError{refused} where the path is missing, the model is another, the checkpoint is of a later step than the last, or checkpoints stand in the
// way of a run that begins afresh; {io_failed} where what was named is damaged.
Start find_start(const Collectives&, const Config&);

// Says what the run goes on from, and in what its input is another than that of the run which wrote it; nothing is left open in the config.
void note_start(Start&, const Config&);

// After loading: says what the checkpoint was without, and what of it has no place here. Moments that begin anew are corrected as such, and an update
// whose stale gradients are not there is not made.
void note_loaded(Start&, const Loaded&, const Program& training, const Config&);

// Puts the folders of steps out of this run's way, in checkpoint.directory: of a run that goes on, those after its step and another of
// that step; else all. They are renamed, or removed where output.overwrite asks for that and none has been found damaged. Rank 0's. Returns a
// sentence for each; throws Error{io_failed}.
std::vector<std::string> clear_checkpoints(const Config&, const Start&);

}  // namespace quadrille
