// The rules of output.directory: who may write into it. Owns the decision and the creation, not the files.
//
// Three calls, so that a job refused for any other reason leaves what was there: check first, hold and then clear when every check has passed.
// Rank 0 makes them; none is collective.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

namespace quadrille {

// How a run begins in its directory.
struct OutputUse {
    bool overwrite = false;  // output.overwrite
    bool resumes = false;    // it goes on from a checkpoint
    bool own = false;        // ... of this directory's own run
    std::function<bool(const std::string&)> same_model = {};  // whether that resolved input is of this run's model

    bool goes_on() const { return resumes && own; }
};

// Decides whether a run may write into `directory`. Absent or empty (but for what a run leaves that was killed before its record stood): yes. Going
// on from its own checkpoint: if the newest record here is of the same model, or there is none. Else with `overwrite`; or, going on from another's
// checkpoint, if there is no record here; or, beginning afresh, if the newest record is of the same model. Returns a sentence for the user when
// something will be replaced or put aside, else "". Throws Error{refused}, changes nothing.
std::string check_output(const std::filesystem::path& directory, const OutputUse& use);

// Holds the directory, which the input names by `key`, for one run: a second run that wants it while this lives is refused. Advisory (flock); where
// the file system has no locks, nothing is held. Throws Error{refused} if another run holds it.
class OutputLock {
  public:
    explicit OutputLock(const std::filesystem::path& directory, const char* key = "output.directory");
    ~OutputLock();
    OutputLock(const OutputLock&) = delete;
    OutputLock& operator=(const OutputLock&) = delete;

  private:
    int descriptor_ = -1;
};

// Makes the directory and its parents, and holds it. Throws Error{refused} if it cannot be made, or another run holds it.
std::unique_ptr<OutputLock> hold_output(const std::filesystem::path& directory);

// Of a directory that is held: removes what an earlier run left that this one may not replace (temporary files, and unless it goes on from its own
// checkpoint trace.h5 and records after the first; never a file that is not ours). run.h5 stays until the first write replaces it. A run that begins
// afresh without `overwrite` keeps the records and the trace under the names that check_output has said. Throws Error{io_failed}.
void clear_output(const std::filesystem::path& directory, const OutputUse& use);

}  // namespace quadrille
