// Requests of any length, from memory anywhere, as blocks that an engine takes. Owns the order, the cutting, the detour of what a direct
// transfer does not take through bounce memory, the retrying, and the first error; knows neither io_uring nor threads.
//
// Invariant: a request's blocks start in the order of their place, requests in the order of their submission, and a block starts as soon as a
// slot is free. No more slots than the engine's depth, one bounce block for each.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "storage/block_engine.hpp"

namespace quadrille {

// A request's number, from 0, ascending.
using TransferTicket = std::int64_t;

// A counter that a request shares with whoever submitted it, who may go away first.
using MovedBytes = std::shared_ptr<std::int64_t>;

// What the transfers may assume of their file.
struct FileShape {
    std::string name = {};              // for messages: of the file, and of the key that asks for it
    std::int64_t bytes = 0;
    std::int64_t block_bytes = 0;       // a multiple of length_alignment
    std::int64_t memory_alignment = 1;  // of a block's memory
    std::int64_t length_alignment = 1;  // of a block's place and length in the file; divides `bytes`
};

class Transfers {
  public:
    // `bounce`: one block or more, at a multiple of memory_alignment; its blocks bound what is in flight. All outlive this object.
    Transfers(BlockEngine& engine, FileShape file, std::span<std::byte> bounce);
    // Waits for what is in flight.
    ~Transfers();
    Transfers(const Transfers&) = delete;
    Transfers& operator=(const Transfers&) = delete;

    // See NvmeFile, whose functions these are.
    TransferTicket submit(Direction direction, std::int64_t offset, std::byte* memory, std::int64_t bytes, MovedBytes moved = nullptr);
    bool poll();
    bool done(TransferTicket ticket) const;
    void wait(TransferTicket ticket);

  private:
    struct Request {
        Direction direction = Direction::read;
        std::int64_t offset = 0;
        std::byte* memory = nullptr;
        std::int64_t bytes = 0;
        MovedBytes moved = {};
        std::int64_t cut = 0;    // bytes that are in blocks
        std::int64_t ended = 0;  // bytes of ended blocks
    };
    struct Slot {
        Block block = {};             // what is left of it
        TransferTicket ticket = 0;
        std::byte* memory = nullptr;  // the request's
        std::int64_t bytes = 0;       // the request's; the block may be longer
        std::int64_t moved = 0;       // by the engine's word, up to where the block goes on
        int vain_tries = 0;
    };

    void check() const;
    void advance(bool wait);
    void collect(bool wait);
    void take_end(const BlockEnd& end);
    void retry(Slot& slot, std::int64_t moved, const std::string& problem);
    void finish(Slot& slot, std::int64_t moved);
    void fail(const Slot& slot, const std::string& problem);
    void cut_blocks();
    void cut_block(Request& request, TransferTicket ticket);
    void start();
    void drain();

    BlockEngine& engine_;
    const FileShape file_;
    std::span<std::byte> bounce_;
    std::vector<Slot> slots_;
    std::vector<int> free_slots_;
    std::deque<Request> requests_;  // from ticket first_ on
    TransferTicket first_ = 0;
    TransferTicket cutting_ = 0;           // the first request that is not wholly cut
    std::int64_t in_flight_ = 0;   // blocks
    std::vector<Block> starting_;
    std::vector<BlockEnd> ends_;
    bool pause_ = false;           // before the next start: the system was short of something
    std::string failure_;
};

}  // namespace quadrille
