// Folders that nobody needs any more, removed behind what goes on: to give a large file's space back takes some disks as long as to write it. Removes
// one lot at a time; waits for it at the end.
#pragma once
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

namespace quadrille {

class Removal {
  public:
    Removal() = default;
    ~Removal() { wait(); }
    Removal(const Removal&) = delete;
    Removal& operator=(const Removal&) = delete;

    // Begins, when the lot before is gone. Where no thread can be had, removes them at once.
    void begin(std::vector<std::filesystem::path> folders);
    // Returns when all are gone, with a sentence for each that stays, once.
    std::vector<std::string> wait();

  private:
    void remove();

    std::vector<std::filesystem::path> folders_;
    std::vector<std::string> failed_;
    std::thread thread_;
};

}  // namespace quadrille
