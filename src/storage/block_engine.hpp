// Who carries blocks between memory and a file: the kernel through io_uring, or a few threads with pread and pwrite. An engine has
// many blocks in flight at once and says how each ended; it cuts nothing, retries nothing and judges nothing: Transfers does.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace quadrille {

enum class Direction { read, write };

// One read or write.
struct Block {
    Direction direction = Direction::read;
    std::int64_t offset = 0;  // in the file
    std::byte* memory = nullptr;
    std::int64_t bytes = 0;
    int slot = 0;  // what the block is called while it is in flight
};

struct BlockEnd {
    int slot = 0;
    std::int64_t result = 0;  // bytes moved, perhaps fewer than asked; or -errno
};

// Used by one thread at a time, which need not be the one that made it.
class BlockEngine {
  public:
    // With blocks in flight it leaves their memory to chance: collect them all first.
    virtual ~BlockEngine() = default;
    // How many blocks may be in flight.
    virtual int depth() const = 0;
    // Starts the blocks in order; their memory is the engine's until they have ended. Never fails: a block that the system does
    // not take ends with its -errno.
    virtual void start(std::span<const Block> blocks) = 0;
    // Appends the ends that are not yet reported, in any order. `wait`: sleeps until there is at least one; something must be in
    // flight. Error{io_failed} if the system gives no more answers.
    virtual void collect(bool wait, std::vector<BlockEnd>& ends) = 0;
};

// At most this many threads serve a file: each is asleep but for the copy in and out of the page cache.
constexpr int most_block_threads = 8;

// Error{io_failed} if not a single thread can be started.
std::unique_ptr<BlockEngine> thread_engine(int descriptor, int queue_depth);

// Null, with a sentence in `notes` that carries the true error, where io_uring is refused or was not there at the build. A trial
// read of the file's first bytes into `trial` must succeed. `memory` is registered with the kernel, which then need not look its
// pages up at each block; where that is refused, blocks go without, and `notes` says why.
std::unique_ptr<BlockEngine> uring_engine(int descriptor, int queue_depth, std::span<std::byte> trial,
                                          std::span<const std::span<std::byte>> memory, std::vector<std::string>& notes);

}  // namespace quadrille
