// A file that all ranks have open together, through MPI-IO: each call is one of every rank, for what it has to move, be it nothing. Owns opening,
// closing, and their order among the ranks. Knows nothing of what the bytes mean.
//
// Invariant: a rank that fails in a call has made the same calls of MPI as the others, and throws after them.
#pragma once
#include "checkpoint/plain_file.hpp"
#include "comm/agree.hpp"

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace quadrille {

using Hints = std::map<std::string, std::string>;  // for MPI-IO; unknown ones do no harm

struct FileRun { std::int64_t offset = 0, bytes = 0; };               // of the file, from its first byte on
struct MemoryRun { const void* at = nullptr; std::int64_t bytes = 0; };

class CollectiveFile {
  public:
    // Opens an existing file. Collective, as are write, read, close and the end. Throws SharedError{io_failed} where no rank has it open, and
    // Error{io_failed} on all ranks where some have: then the job must be aborted, for MPI's end would wait for those that cannot close it.
    CollectiveFile(const Collectives&, const std::filesystem::path&, PlainFile::Open how, const Hints&);
    ~CollectiveFile();  // closes it
    CollectiveFile(const CollectiveFile&) = delete;
    CollectiveFile& operator=(const CollectiveFile&) = delete;

    // As many bytes of memory, in their order, as the runs of the file have, which ascend and do not overlap; at most 1 GiB in all. Reading fills the
    // memory. Throw Error{io_failed} where this rank has failed.
    void write(const std::vector<FileRun>&, const std::vector<MemoryRun>&);
    void read(const std::vector<FileRun>&, const std::vector<MemoryRun>&);
    // What is written is seen by all that open the file from here on. Throws as write.
    void close();

    // This rank alone: what it has written begins its way to the disk; waits for nothing that it need not.
    void begin_sync() { plain_->begin_sync(); }
    // This rank alone, also after close(): what any rank of this machine has written is on the disk. Throws Error{io_failed}, also for a write that
    // has failed on its way since this was opened.
    void sync(const std::function<void()>& beat) { plain_->sync(beat); }

  private:
    using Call = int (*)(MPI_File, MPI_Offset, void*, int, MPI_Datatype, MPI_Status*);
    void move(const std::vector<FileRun>&, const std::vector<MemoryRun>&, Call, const char* doing);
    [[noreturn]] void fail(const char* doing, int reason) const;
    void check(int reason, const char* doing) const {
        if (reason != MPI_SUCCESS) fail(doing, reason);
    }

    const Collectives& ranks_;
    const std::filesystem::path path_;
    std::optional<PlainFile> plain_;
    MPI_File file_ = MPI_FILE_NULL;
};

}  // namespace quadrille
