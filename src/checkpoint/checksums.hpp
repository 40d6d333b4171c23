// The sums over a file's tensors: what says that it is whole.
#pragma once
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/plain_file.hpp"

namespace quadrille {

struct Sums {
    std::uint64_t checksum = 0;     // XXH3-64 of the tensor's bytes
    std::uint64_t fingerprint = 0;  // of its values and their places (checkpoint/transfer.hpp)
};

// Of one tensor, read from its first byte to its last. Calls `beat` now and then. Throws Error{io_failed}.
Sums sums_of(const PlainFile& file, const StoredTensor& tensor, const std::function<void()>& beat);

// Of every tensor, in their order: each is read by one rank, so that all have nearly as much to read, and there by one of so many threads. Alike on
// all ranks. Collective; throws SharedError{io_failed} alike on all ranks.
std::vector<Sums> sums_of(const Collectives&, const std::filesystem::path& file, const std::vector<StoredTensor>& tensors, int threads = 1);

// A sentence for each tensor whose checksum is not what the file says of it.
std::string damage(const Checkpoint&, const std::vector<Sums>& found);

}  // namespace quadrille
