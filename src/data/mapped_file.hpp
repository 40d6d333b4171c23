// A file's bytes, read-only. Large files are memory-mapped; small ones are copied, so that thousands of source files need
// neither thousands of mappings nor open descriptors. A file may still shrink or fail while it is read: who reads holds a guard, and asks
// afterwards (`problem_before`).
#pragma once
#include "data/page_guard.hpp"

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace quadrille {

// What tells two files of one path apart, as far as a look at their ends can.
struct FileMark {
    std::string path;
    std::int64_t size = 0;
    std::uint64_t ends = 0;  // a hash of the first and the last 32 KiB
};

class MappedFile {
  public:
    // Opens a regular file. What is wrong otherwise goes to `problem` ("PATH: No such file or directory") and the file is empty.
    MappedFile(std::string path, std::string& problem);
    ~MappedFile();
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&&) = delete;

    const std::string& path() const { return path_; }
    std::int64_t size() const { return size_; }
    std::span<const std::byte> bytes() const { return {begin_, static_cast<std::size_t>(size_)}; }

    // To be held while bytes() are read: pages that have gone away then read as zeroes, and do not end the process.
    PageGuard guard() const { return {bytes(), lost_}; }
    // What has become, since the file was opened, of bytes below `end` that have been read: cut off, or no longer readable. Empty where nothing has.
    // A file that was replaced or removed is still whole here.
    std::string problem_before(std::int64_t end) const;
    bool lost() const { return lost_.load(); }  // a page: quick, and true only where one was read

    FileMark mark() const;

  private:
    bool map(int descriptor, std::string& problem);
    bool copy(int descriptor, std::string& problem);
    bool size_now(std::int64_t& size) const;

    std::string path_;
    std::int64_t size_ = 0;
    const std::byte* begin_ = nullptr;
    bool mapped_ = false;
    int descriptor_ = -1;  // of a mapped file, where there are descriptors enough
    mutable std::atomic<bool> lost_ = false;
    std::uint64_t device_ = 0, inode_ = 0;
    std::vector<std::byte> copy_;
};

// A little-endian integer at any alignment.
template <class T>
T load(const std::byte* at) {
    static_assert(std::endian::native == std::endian::little, "token files are little-endian");
    T value;
    std::memcpy(&value, at, sizeof(T));
    return value;
}

}  // namespace quadrille
