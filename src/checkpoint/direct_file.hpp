// One rank's own writes to a file that is there, past the page cache (O_DIRECT) and in the background: memory that a save is written from need not be
// copied to pages that the system has to find first, and what others have in the page cache stays there. Owns a descriptor, the threads that write,
// and the memory that places pass through which the disk would not take from where they are. Not collective.
#pragma once
#include "storage/aligned_memory.hpp"
#include "storage/transfers.hpp"

#include <deque>
#include <filesystem>
#include <functional>

namespace quadrille {

class DirectFile {
  public:
    // Null where the file system, or the system, does not write so, or refuses a thread or memory for it: other ways do.
    static std::unique_ptr<DirectFile> open(const std::filesystem::path&);
    ~DirectFile();
    DirectFile(const DirectFile&) = delete;
    DirectFile& operator=(const DirectFile&) = delete;

    // Begins to write; place and length are multiples of file_alignment, the memory is anywhere and stays as it is until it is written. Throws
    // Error{io_failed} with the file's name and the reason, also of what was begun before, as do all functions below.
    void write(std::int64_t offset, std::span<const std::byte> bytes);
    // Goes on with what is under way, without waiting. Call it often.
    void poll() { transfers_->poll(); }
    // Returns when no more than so many bytes are under way; calls `beat` for each write that has ended.
    void wait(std::int64_t most_under_way, const std::function<void()>& beat);

  private:
    DirectFile(int descriptor, std::unique_ptr<BlockEngine> engine, AlignedMemory bounce, const std::filesystem::path&);

    struct Write { TransferTicket ticket = 0; std::int64_t bytes = 0; };

    const int descriptor_;
    std::unique_ptr<BlockEngine> engine_;
    AlignedMemory bounce_;
    std::unique_ptr<Transfers> transfers_;
    std::deque<Write> writes_;  // that are under way
    std::int64_t under_way_ = 0;
};

}  // namespace quadrille
