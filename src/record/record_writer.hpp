// Writes the run record so that the file is whole at every instant.
//
// Owns DIRECTORY/run.h5 (or run-2.h5, record/chain.hpp) and the temporary file beside it. Invariant: it is either absent or a whole, closed HDF5 file
// that any reader can open, also after a crash or a power cut; it is replaced by a rename. It is rank 0's: nothing here is collective,
// and it waits for whoever else of the process is in HDF5 (record/hdf5.hpp).
#pragma once
#include "record/run_record.hpp"

#include <chrono>
#include <filesystem>

namespace quadrille {

class RecordWriter {
  public:
    using Clock = std::chrono::steady_clock;

    // `directory` exists (output_directory.hpp). Creates nothing.
    explicit RecordWriter(std::filesystem::path directory, const std::string& name = "run.h5");

    // Replaces the file by `record`: written under a temporary name, synced, renamed, the directory synced. Call it when due
    // and when the run ends. Throws Error{io_failed} with the file and the reason when the disk is full or the directory is gone;
    // the former one is then left whole and the temporary file removed.
    void write(const RunRecord& record);

    // True when one more write as dear as the last keeps all writing since construction within 1 % of the time. The first write
    // is always due. Ask at each log interval.
    bool due(Clock::time_point now = Clock::now()) const;

    double seconds_spent() const { return spent_; }  // in `write`, all together; tests of `due` cannot know it otherwise
    const std::filesystem::path& path() const { return path_; }

  private:
    std::filesystem::path path_;
    Clock::time_point born_;
    double spent_ = 0, last_ = 0;  // seconds
    bool written_ = false;
};

}  // namespace quadrille
