// The folders of a checkpoint directory: their names, what dead saves have left, which go when. Owns nothing in them. Rank 0 calls; not collective.
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace quadrille {

// step-00000100
std::string step_name(std::int64_t step);

// Makes the directory, and its parents, where they are missing, so that a power cut takes none of them away again. Returns those that it has made,
// the outermost first. Throws Error{io_failed}.
std::vector<std::filesystem::path> make_directories(const std::filesystem::path& directory);

// A folder under a temporary name, step-00000100.partial-HOST-PID-N, that is a save's until it is kept: else it and all in it are removed, and the
// directories that were made for it, unless something else is in them by then. It is locked meanwhile, where the file system has locks, so that
// others know it is alive.
class PartialFolder {
  public:
    // Makes `directory` too where it is missing. Throws Error{io_failed}.
    PartialFolder(const std::filesystem::path& directory, std::int64_t step);
    // The same for a folder of another name, which has a parent.
    explicit PartialFolder(const std::filesystem::path& folder);
    ~PartialFolder();
    PartialFolder(const PartialFolder&) = delete;
    PartialFolder& operator=(const PartialFolder&) = delete;

    const std::filesystem::path& path() const { return path_; }
    // Gives it its name, in exchange for a folder that has it, and syncs the directory. Throws Error{io_failed}: then that folder has its name still.
    void keep();

  private:
    void replace();

    std::filesystem::path directory_, path_, final_;
    std::vector<std::filesystem::path> made_;  // for it, the outermost first
    int lock_ = -1;
};

// Takes their names from all steps up to `step` but the newest `keep` of them; newer ones, of a run that went further, stay. keep 0: from none.
// Returns the folders, which remain to be removed; `failed` gets a sentence where it could not go on: the new one is whole all the same.
std::vector<std::filesystem::path> retire_old(const std::filesystem::path& directory, std::int64_t step, std::int64_t keep,
                                              std::vector<std::string>& failed);

// Removes the temporary folders of this name, or of any step's, that saves of dead processes have left: nobody has locked them, and their process was
// one of this host and is gone, or nothing was written to them for an hour. A former one that had made room for a new one which never got its name
// gets its own back. A sentence for each, also for those that may be alive elsewhere and so stay.
std::vector<std::string> remove_leftovers(const std::filesystem::path& directory, const std::string& of = "");

}  // namespace quadrille
