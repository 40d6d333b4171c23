// That ranks see the same data. A copy that is stale or cut on one node is no error there, and trains on wrong targets where ranks share sequences.
#pragma once
#include "comm/world.hpp"
#include "data/mapped_file.hpp"
#include "grid/grid.hpp"

#include <span>
#include <vector>

namespace quadrille {

// Throws SharedError{refused}, with both ranks and figures, if this rank's files differ from rank 0's in size or in what their ends hold.
// Collective.
void require_same_files(const World&, const std::vector<FileMark>&);

// What the ranks have read for a step (Batch::hash, by rank): the hash of the global batch, each sequence counted once.
std::uint64_t hash_of_batch(const Grid&, std::span<const std::int64_t> hashes);
// The sentence about the first rank that has read other sequences than the one whose replica it is part of; empty if none has.
std::string different_sequences(const Grid&, std::int64_t step, std::span<const std::int64_t> hashes);

}  // namespace quadrille
