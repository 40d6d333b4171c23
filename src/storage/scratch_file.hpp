// A file without a name: made for one rank in a user's directory, and gone with the process however that ends. Owns the descriptor, the
// space and the knowledge of what the file system demands of reads and writes; it moves no data of anybody's. (On NFS a file cannot lose its
// name while it is open: the client hides it until then.)
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "storage/aligned_memory.hpp"

namespace quadrille {

// O_DIRECT, which spares the page cache and a copy, where the file system allows it; or never.
enum class Access { direct, buffered };

class ScratchFile {
  public:
    // A file of `bytes`, rounded up to file_alignment, whose space is reserved where the file system can. Its content is undefined. Throws
    // Error{io_failed} naming directory and bytes: it is missing, is no directory, is read-only, is full. Appends a sentence to `notes`
    // for each thing that is allowed to be missing; it does not name the file, so all ranks of a directory say the same.
    ScratchFile(const std::string& directory, std::int64_t bytes, Access wanted, std::vector<std::string>& notes);
    ~ScratchFile();
    ScratchFile(const ScratchFile&) = delete;
    ScratchFile& operator=(const ScratchFile&) = delete;

    int descriptor() const { return descriptor_; }
    std::int64_t bytes() const { return bytes_; }
    // For messages: DIRECTORY/#INODE, as lsof shows it too.
    const std::string& name() const { return name_; }
    Access access() const { return access_; }
    // What the memory of a direct transfer is a multiple of: 64, 512 or 4096, found by trying; 1 if buffered.
    std::int64_t memory_alignment() const { return memory_alignment_; }

  private:
    void open_unnamed(const std::string& directory);
    void open_and_unlink(const std::string& directory);
    void reserve(const std::string& directory, std::vector<std::string>& notes);
    void make_direct(const std::string& directory, std::vector<std::string>& notes);
    int write_trial(const std::byte* memory) const;
    [[noreturn]] void fail_to_make() const;
    [[noreturn]] void fail(const std::string& doing, int error) const;

    int descriptor_ = -1;
    std::int64_t bytes_ = 0;
    std::string name_;
    Access access_ = Access::buffered;
    std::int64_t memory_alignment_ = 1;
};

}  // namespace quadrille
