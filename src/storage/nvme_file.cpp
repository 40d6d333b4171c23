#include "storage/nvme_file.hpp"

#include "base/error.hpp"

namespace quadrille {
namespace {

constexpr std::int64_t smallest_block = 512;

std::unique_ptr<BlockEngine> make_engine(const NvmeOptions& options, const ScratchFile& file, std::span<std::byte> bounce, Carrier& carrier,
                                         std::vector<std::string>& notes) {
    if (carrier == Carrier::io_uring) {
        std::vector<std::span<std::byte>> memory = options.memory;
        if (options.staging.empty()) memory.push_back(bounce);
        if (auto engine = uring_engine(file.descriptor(), options.queue_depth, bounce.first(nvme_alignment), memory, notes)) return engine;
        carrier = Carrier::threads;
    }
    return thread_engine(file.descriptor(), options.queue_depth);
}

FileShape shape(const ScratchFile& file, std::int64_t block_bytes) {
    const bool direct = file.access() == Access::direct;
    return {"offload.nvme_path: " + file.name(), file.bytes(), block_bytes, file.memory_alignment(), direct ? file_alignment : 1};
}

// What transfers pass through: the file's own memory, else what the options give.
std::span<std::byte> bounce_memory(const NvmeOptions& options, const AlignedMemory& own) {
    const std::int64_t bytes = NvmeFile::staging_bytes(options);
    if (own) return {own.get(), static_cast<std::size_t>(bytes)};
    require(static_cast<std::int64_t>(options.staging.size()) == bytes, "storage: staging of another size than staging_bytes");
    require(reinterpret_cast<std::uintptr_t>(options.staging.data()) % static_cast<std::uintptr_t>(nvme_alignment) == 0,
            "storage: staging begins at a multiple of nvme_alignment");
    return options.staging;
}

}  // namespace

std::int64_t NvmeFile::staging_bytes(const NvmeOptions& options) {
    require(options.block_size >= smallest_block && options.queue_depth >= 1, "storage: blocks of 512 bytes or more, one in flight or more");
    return options.queue_depth * nvme_bytes(options.block_size);
}

NvmeFile::NvmeFile(const NvmeOptions& options)
    : file_(options.directory, options.bytes, options.access, notes_),
      own_(options.staging.empty() ? aligned_memory(staging_bytes(options), "for offload: blocks on their way to the nvme tier") : AlignedMemory()),
      bounce_(bounce_memory(options, own_)), carrier_(options.carrier),
      engine_(make_engine(options, file_, bounce_, carrier_, notes_)), transfers_(*engine_, shape(file_, nvme_bytes(options.block_size)), bounce_) {}

TransferTicket NvmeFile::read(std::int64_t offset, std::byte* memory, std::int64_t bytes, MovedBytes moved) {
    require(offset % nvme_alignment == 0, "storage: a region of the nvme tier begins at a multiple of nvme_alignment");
    return transfers_.submit(Direction::read, offset, memory, bytes, std::move(moved));
}

TransferTicket NvmeFile::write(std::int64_t offset, const std::byte* memory, std::int64_t bytes, MovedBytes moved) {
    require(offset % nvme_alignment == 0, "storage: a region of the nvme tier begins at a multiple of nvme_alignment");
    return transfers_.submit(Direction::write, offset, const_cast<std::byte*>(memory), bytes, std::move(moved));  // it reads its memory
}

}  // namespace quadrille
