// checkpoint.directory is one run's: held from before it is cleared until the run ends, whatever output.directory its runs have. Rank 0's.
#pragma once
#include "record/output_directory.hpp"
#include "train/resume.hpp"

#include <filesystem>
#include <memory>

namespace quadrille {

class CheckpointDirectory {
  public:
    // Makes it where it is missing, for a stop saves whatever the interval. Throws Error{refused} where another run holds it, or has saved there
    // since find_start looked, and Error{io_failed} where it cannot be made.
    CheckpointDirectory(const Config&, const Start&);
    ~CheckpointDirectory();  // an empty one that was made here goes again
    CheckpointDirectory(const CheckpointDirectory&) = delete;
    CheckpointDirectory& operator=(const CheckpointDirectory&) = delete;

  private:
    const std::filesystem::path path_;
    bool made_ = false;
    std::unique_ptr<OutputLock> lock_;
};

}  // namespace quadrille
