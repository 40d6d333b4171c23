// The rules of output.directory: who may write into it. Owns the decision and the creation, not the files.
//
// Two calls, so that a job refused for any other reason leaves nothing behind: check first, create when every check has passed.
// Rank 0 makes both; neither is collective.
#pragma once
#include <filesystem>
#include <memory>
#include <string>

namespace quadrille {

// Decides whether a run of the resolved input `config_yaml` may write into `directory`. Absent or empty: yes. Otherwise only with
// `overwrite`, or if its run.h5 is of the same model (the section `model` of its input) and it holds no checkpoint: then the run
// starts afresh. Returns a sentence for the user when something will be replaced, else "". Throws Error{refused}, changes
// nothing.
std::string check_output(const std::filesystem::path& directory, bool overwrite, const std::string& config_yaml);

// Holds the directory for one run: a second run that wants it while this lives is refused. Advisory (flock); where the file system has no
// locks, nothing is held. Throws Error{refused} if another run holds it.
class OutputLock {
  public:
    explicit OutputLock(const std::filesystem::path& directory);
    ~OutputLock();
    OutputLock(const OutputLock&) = delete;
    OutputLock& operator=(const OutputLock&) = delete;

  private:
    int descriptor_ = -1;
};

// Makes the directory and its parents and removes what an earlier run left that this one may not replace (trace.h5, temporary
// files; never a file that is not ours). run.h5 stays until the first write replaces it; without `overwrite` it is kept, and its
// trace, under the name that check_output has said. Throws Error{refused} if it cannot be made, Error{io_failed} if it cannot be cleared.
std::unique_ptr<OutputLock> create_output(const std::filesystem::path& directory, bool overwrite);

}  // namespace quadrille
