#include "train/checkpoint_directory.hpp"

#include "base/error.hpp"
#include "checkpoint/steps.hpp"

#include <algorithm>

#include <unistd.h>

namespace quadrille {

namespace fs = std::filesystem;

CheckpointDirectory::CheckpointDirectory(const Config& c, const Start& start) : path_(c.checkpoint.directory) {
    std::error_code missing;
    made_ = !fs::exists(path_, missing);
    make_directories(path_);
    const bool held = fs::equivalent(path_, c.output.directory, missing);  // by that one's lock
    if (!held) lock_ = std::make_unique<OutputLock>(path_, "checkpoint.directory");
    for (const fs::path& step : steps_in(path_))
        if (std::find(start.seen.begin(), start.seen.end(), step) == start.seen.end())
            throw Error(Exit::refused, fmt::format("checkpoint.directory: {} has {} since this run looked there: another run was writing into it; "
                                                   "start again", path_.string(), step.filename().string()));
}

CheckpointDirectory::~CheckpointDirectory() {
    if (made_) ::rmdir(path_.c_str());  // fails where it is not empty
}

}  // namespace quadrille
