// Files and folders through the system's own calls: reading at a place, appending, syncing. Every failure is Error{io_failed} with the name and the
// system's reason. Not collective.
#pragma once
#include "base/error.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>

namespace quadrille {

// Of a file that is not what was saved: missing, truncated, changed. All other errors say that it could not be read just now, and nothing of it.
struct Damaged : Error { using Error::Error; };

class PlainFile {
  public:
    enum class Open { read, write, make };  // write: an existing file
    // Throws Damaged where there is none of that name, or what is no file: a folder, a device, a pipe, which is not waited for.
    PlainFile(std::filesystem::path path, Open how);
    ~PlainFile();
    PlainFile(const PlainFile&) = delete;
    PlainFile& operator=(const PlainFile&) = delete;

    std::int64_t size() const;
    // All of `into`, from byte `offset` on. Throws Damaged where the file ends before.
    void read(std::int64_t offset, std::span<std::byte> into) const;
    void write(std::int64_t offset, std::span<const std::byte> bytes);
    // Takes the space of so many bytes, where the file system can; the file becomes no longer by it.
    void reserve(std::int64_t bytes);
    // Gives back what it has taken beyond its end.
    void give_back();
    // Refuses a size that the system would not let the file have.
    void try_size(std::int64_t bytes);
    // What is written begins its way to the disk, where the system can be told; waits for nothing that it need not.
    void begin_sync();
    // Returns when all is on the disk (what cannot sync says so, and is not waited for). Calls `beat` now and then.
    void sync(const std::function<void()>& beat = [] {});

  private:
    [[noreturn]] void fail(const char* doing, int reason) const;
    std::filesystem::path path_;
    int descriptor_ = -1;
};

}  // namespace quadrille
