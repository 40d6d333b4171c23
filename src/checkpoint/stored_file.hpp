// The file of a checkpoint, checkpoint.h5: its structures and its seal. Owns what is in it but the tensors' values; not collective.
//
// Behind HDF5's own end, which HDF5 does not look at, lies the seal: a line of 24 bytes for each tensor, by place in the file: its first byte, its
// bytes and their XXH3-64; then the bytes before the seal, the XXH3-64 of those that are no tensor's (HDF5's structures, attributes and gaps), the
// number of lines, the XXH3-64 of all of the seal so far, and the mark "qdrl-ck1". All numbers are 64 bits, little-endian. So truncation and damage
// are found by plain reads: HDF5 does not survive every damage to its structures, and never gets to see any.
#pragma once
#include "checkpoint/checkpoint.hpp"

namespace quadrille {

inline constexpr std::string_view checkpoint_schema = "quadrille-checkpoint-1";

// Makes `file` with all groups, datasets (without values, their place taken) and attributes of the point; checksums are 0 yet. Fills in each
// tensor's offset and bytes. Takes the space on the disk where the file system can say that it is there. Throws Error{io_failed}.
void make_file(const std::filesystem::path& file, const TrainingPoint& point, std::vector<StoredTensor>& tensors);

// Writes the tensors' checksums and that of all into the file that make_file has made, and seals it. Throws Error{io_failed}.
void seal_file(const std::filesystem::path& file, const std::vector<StoredTensor>& tensors);

// The checkpoint in `folder`; the tensors' values are not looked at. Throws Damaged with file and reason where anything else is not what was saved,
// and Error{io_failed} where it cannot be read: HDF5 comes after the seal, so what it does not take is a lock or another program's.
Checkpoint read_structures(const std::filesystem::path& folder);

// XXH3-64 of all checksums, 8 bytes each, in the order of their paths.
std::uint64_t checksum_of_all(const std::vector<StoredTensor>& tensors);

}  // namespace quadrille
