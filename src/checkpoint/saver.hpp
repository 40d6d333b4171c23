// Writes a run's checkpoints, so that at every instant each one that has its name is whole, and the newest stay.
//
// A save: rank 0 makes the file under a temporary name, with all its structures and all the space it takes; large runs go straight to the disk from
// each rank, hashed on the way (in_order.hpp), all else in collective calls of at most `most_bytes` each, and is read back for its checksums; copies
// of a piece share the work; rank 0 adds the checksums; all is synced and the folder gets its name. Only then older ones go, behind what follows, but
// before the next save takes space: the disk has keep + 1 checkpoints at most. What fails leaves nothing behind, and what was there as it was.
//
// With `asynchronous` the state is copied to `snapshot` first and a thread of each rank does the rest behind training, on a communicator of its
// own. HDF5 is used by one thread at a time (record/hdf5.hpp).
#pragma once
#include "checkpoint/checkpoint.hpp"

#include <memory>
#include <span>

namespace quadrille {

struct SaveSettings {
    std::filesystem::path directory;                   // checkpoint.directory; made when first needed
    std::map<std::string, std::string> hints = {};     // checkpoint.hints, for MPI-IO, which then gets all; unknown ones do no harm
    std::int64_t keep = 2;                             // checkpoint.keep: so many of the steps up to the saved one stay; 0: all
    bool asynchronous = false;                         // checkpoint.asynchronous
    std::int64_t most_bytes = std::int64_t{64} << 20;  // that a rank writes in one call, where the memory is there
    std::int64_t least_direct = std::int64_t{1} << 20;  // bytes of a tensor that may go straight to the disk
    int threads = 1;                                   // that read back what was written
    // What a thread that saves behind training does when it has failed alone, and the others would wait for it for ever: must end the job.
    std::function<void(const std::exception&)> fail_alone = {};
};

// A finished save.
struct Saved {
    std::filesystem::path folder;
    std::int64_t step = 0, bytes = 0;
    double seconds = 0;            // from call to whole; of an asynchronous one most of them behind training
    double removal_seconds = 0;    // rank 0's: of the removal of older ones behind the save before it
    std::vector<std::string> notes = {};  // rank 0's: older ones that could not be removed
};

class Saver {
  public:
    // Collective over all ranks, as are all functions below. Removes what saves of dead processes have left in the directory, if they are surely
    // dead. What is named must outlive the saver. `snapshot`: snapshot_bytes of memory where the settings are asynchronous, else empty.
    Saver(const Collectives&, SaveSettings, const Program& training, const Coordinate&, Arena&, std::span<std::byte> snapshot = {});
    ~Saver();  // waits for what is under way
    Saver(const Saver&) = delete;
    Saver& operator=(const Saver&) = delete;

    // Saves the state as it stands, between two steps; an existing checkpoint of that step is replaced. Asynchronous: returns when the state is
    // copied. False where an earlier save is still under way on any rank: then nothing is done. Throws SharedError{io_failed} with file and reason,
    // also that of an earlier save behind training.
    bool save(const TrainingPoint&);
    // Waits until nothing is under way any more, and older ones are gone. Throws as save.
    void finish();
    // What has been saved since this was last asked, in order; alike on all ranks. Looks, and waits for nothing but the other ranks. Throws as save.
    std::vector<Saved> saved();

    // What a checkpoint of this run takes, of all ranks together.
    std::int64_t bytes() const;
    // Sentences for rank 0 to print, since they were last asked for: leftovers that were removed, or had to stay.
    std::vector<std::string> notes();

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace quadrille
