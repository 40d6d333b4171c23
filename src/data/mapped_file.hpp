// A file's bytes, read-only. Large files are memory-mapped; small ones are copied, so that thousands of source files need
// neither thousands of mappings nor open descriptors. The path's file must not shrink while it is read: `shrunk` tells.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace quadrille {

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

    // True if the mapped file has been cut short since it was opened: touching its lost pages would kill the process.
    // `now` is its present size. A file that was replaced or removed is still whole here.
    bool shrunk(std::int64_t& now) const;

  private:
    bool map(int descriptor, std::string& problem);
    bool copy(int descriptor, std::string& problem);

    std::string path_;
    std::int64_t size_ = 0;
    const std::byte* begin_ = nullptr;
    bool mapped_ = false;
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
