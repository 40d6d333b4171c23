#include "checkpoint/direct_file.hpp"

#include "base/error.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace quadrille {
namespace {

// Enough for a disk to be busy while the next block is copied; each rank of a node takes as much memory.
constexpr std::int64_t block_bytes = std::int64_t{1} << 20;
constexpr int blocks = 4;

// Of the file, and what is missing of its last block.
std::int64_t bytes_of(int descriptor) {
    struct stat status {};
    return ::fstat(descriptor, &status) == 0 ? aligned_up(status.st_size, file_alignment) : 0;
}

// Some file systems take the flag and refuse the transfer.
bool reads_directly(int descriptor) {
    const AlignedMemory memory = aligned_memory(file_alignment, "to try direct reads");
    return ::pread(descriptor, memory.get(), static_cast<std::size_t>(file_alignment), 0) >= 0;
}

}  // namespace

std::unique_ptr<DirectFile> DirectFile::open(const std::filesystem::path& path) {
    const int descriptor = ::open(path.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);
    if (descriptor < 0) return nullptr;
    try {
        if (reads_directly(descriptor)) {
            AlignedMemory bounce = aligned_memory(blocks * block_bytes, "to save past the page cache");
            return std::unique_ptr<DirectFile>(new DirectFile(descriptor, thread_engine(descriptor, blocks), std::move(bounce), path));
        }
    } catch (const std::exception&) {  // no thread, or no memory: what goes through the page cache needs neither
    }
    ::close(descriptor);
    return nullptr;
}

DirectFile::DirectFile(int descriptor, std::unique_ptr<BlockEngine> engine, AlignedMemory bounce, const std::filesystem::path& path)
    : descriptor_(descriptor), engine_(std::move(engine)), bounce_(std::move(bounce)),
      transfers_(std::make_unique<Transfers>(*engine_, FileShape{path.string(), bytes_of(descriptor), block_bytes, file_alignment, file_alignment},
                                             std::span(bounce_.get(), static_cast<std::size_t>(blocks * block_bytes)))) {}

DirectFile::~DirectFile() {
    transfers_.reset();  // waits for what is in flight
    engine_.reset();
    ::close(descriptor_);
}

void DirectFile::write(std::int64_t offset, std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    std::byte* const memory = const_cast<std::byte*>(bytes.data());  // transfers have one type for what they read and what they write
    writes_.push_back({transfers_->submit(Direction::write, offset, memory, std::ssize(bytes)), std::ssize(bytes)});
    under_way_ += std::ssize(bytes);
}

void DirectFile::wait(std::int64_t most_under_way, const std::function<void()>& beat) {
    while (under_way_ > most_under_way) {
        transfers_->wait(writes_.front().ticket);
        under_way_ -= writes_.front().bytes;
        writes_.pop_front();
        beat();
    }
}

}  // namespace quadrille
