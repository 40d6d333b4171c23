// Folders that nobody needs any more, removed behind what goes on: to give a large file's space back takes some disks as long as to write it. Removes
// one lot at a time; waits for it at the end.
#pragma once
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace quadrille {

class Removal {
  public:
    Removal() = default;
    ~Removal() {
        if (thread_.joinable()) thread_.join();
    }
    Removal(const Removal&) = delete;
    Removal& operator=(const Removal&) = delete;

    // Begins; the lot before must have been waited for. Where no thread can be had, removes them at once.
    void begin(std::vector<std::filesystem::path> folders);
    // Returns when all are gone, with a sentence for each that stays, once.
    std::vector<std::string> wait();
    // Those that the lot that was last waited for took.
    double seconds() const { return seconds_; }

  private:
    void remove();

    std::vector<std::filesystem::path> folders_;
    std::vector<std::error_code> reasons_;  // why each stays, made beforehand: the thread takes no memory of its own to say it
    double seconds_ = 0;
    std::thread thread_;
};

}  // namespace quadrille
