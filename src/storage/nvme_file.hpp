// The nvme tier of one rank: a file on a local disk, read and written in the background. This is the room's front door.
//
// How it is made of parts:
//   ScratchFile  makes the file, reserves its space and finds out what direct access (O_DIRECT) demands. The file has no name, so two runs in
//                one directory cannot meet, nothing is left when a run is killed, and it does no harm if the directory is removed.
//   BlockEngine  has up to queue_depth blocks in flight: io_uring with registered memory; where it is refused, threads with pread and pwrite.
//   Transfers    cuts requests in blocks of block_size, in order; sends through bounce memory what direct access does not take as it is;
//                goes on after a short transfer or an interruption; keeps the first error.
//
// What is allowed to be missing (direct access, reserved space, io_uring, registered memory) costs time and a sentence in notes(), nothing else.
//
// Places in the file are multiples of nvme_alignment whatever the disk: where a tensor lies can be planned without one. The bytes between a
// region's end and the next multiple belong to the region: a write sets them to zero or leaves them. So two regions that share no
// multiple never disturb each other.
//
// It does not know tensors, and orders nothing but the starts: requests overlap, so two of which one writes what the other touches, in the
// file or in memory, must not be under way together. Not collective. All calls come from one thread at a time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "storage/scratch_file.hpp"
#include "storage/transfers.hpp"

namespace quadrille {

// What every place in the file is a multiple of.
constexpr std::int64_t nvme_alignment = file_alignment;

// The bytes that a region of `bytes` takes in the file.
constexpr std::int64_t nvme_bytes(std::int64_t bytes) { return aligned_up(bytes, nvme_alignment); }

enum class Carrier { io_uring, threads };

struct NvmeOptions {
    std::string directory = ".";                   // offload.nvme_path
    std::int64_t bytes = 0;                        // of the file
    std::int64_t block_size = std::int64_t{1} << 20;  // offload.block_size: at least 512; rounded up to nvme_alignment
    int queue_depth = 32;                          // offload.queue_depth: at least 1
    Access access = Access::direct;
    Carrier carrier = Carrier::io_uring;
    std::vector<std::span<std::byte>> memory = {};  // that requests will use, registered where allowed; outlives the file
    std::span<std::byte> staging = {};  // staging_bytes of it, part of `memory`, at a multiple of nvme_alignment; empty: the file's own
};

class NvmeFile {
  public:
    // Allocates all that it will ever use. Error{io_failed} naming directory and bytes; Error{no_memory}.
    explicit NvmeFile(const NvmeOptions& options);

    // The memory, in bytes, that transfers of an NvmeFile of these options pass through: a bounce block per block in flight, wherever the file is.
    static std::int64_t staging_bytes(const NvmeOptions& options);

    // Submit a transfer of `bytes` (any number, from 0) between `memory` (anywhere) and the file at `offset`, and return its ticket at once. The
    // memory must stay, and for a write stay as it is, until the ticket is done.
    // `*moved`, where given, grows by what the system says it has moved of these bytes: by all of them before the ticket is done.
    // After a transfer has failed, these and all functions below throw the same Error{io_failed}, with file and bytes; by then nothing is
    // in flight.
    TransferTicket read(std::int64_t offset, std::byte* memory, std::int64_t bytes, MovedBytes moved = nullptr);
    TransferTicket write(std::int64_t offset, const std::byte* memory, std::int64_t bytes, MovedBytes moved = nullptr);

    // Takes what has ended and starts what comes next, without waiting; true while anything is under way. Call it often: only it and
    // wait() keep queue_depth blocks in flight.
    bool poll() { return transfers_.poll(); }
    // Whether poll() or wait() has seen the transfer end.
    bool done(TransferTicket ticket) const { return transfers_.done(ticket); }
    // Sleeps until it has ended.
    void wait(TransferTicket ticket) { transfers_.wait(ticket); }

    // Sentences about what is missing here, equal on all ranks of one directory and machine: print each once per job.
    const std::vector<std::string>& notes() const { return notes_; }
    // What it turned out to be.
    Access access() const { return file_.access(); }
    Carrier carrier() const { return carrier_; }
    const std::string& name() const { return file_.name(); }
    std::int64_t bytes() const { return file_.bytes(); }
    int descriptor() const { return file_.descriptor(); }
    std::span<const std::byte> staging() const { return bounce_; }

  private:
    std::vector<std::string> notes_;
    ScratchFile file_;
    AlignedMemory own_;  // none where the options have staging
    std::span<std::byte> bounce_;
    Carrier carrier_;
    std::unique_ptr<BlockEngine> engine_;
    Transfers transfers_;
};

}  // namespace quadrille
