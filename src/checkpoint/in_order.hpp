// Tensors of a save whose bytes each rank has in one run, as those are that are cut along their first dim, over flat shards, or not at all. Each
// rank writes its run straight to the disk, and the tensor's checksum is taken on the way, from the memory that is written, by one rank after
// another, each of which hands the running hash on to the rank that has what follows. So nothing is read back, nor kept in the page cache, but for
// the ends of runs that share a block of the disk with others' bytes.
//
// All ranks go through the tensors in one order, and through each in that of its elements, so that whoever waits for a hash waits for one that is on
// its way.
#pragma once
#include "checkpoint/direct_file.hpp"
#include "checkpoint/state_tensors.hpp"
#include "checkpoint/values.hpp"

namespace quadrille {

// This rank's run of a tensor, and the ranks that have what stands before and behind it; -1: nothing does.
struct Turn {
    std::size_t tensor = 0;
    Extent run;  // of elements
    int before = -1, after = -1;
};

struct Turns {
    std::vector<char> in_order;  // by tensor; alike on all ranks
    std::vector<Turn> mine;      // as the tensors lie in the file
};

// Of tensors of so many bytes at least. `runs`: by tensor, the elements that this rank writes. Collective.
Turns turns_of(const Collectives&, const std::vector<StateTensor>&, const std::vector<Extents>& runs, std::int64_t least_bytes);

// What of a run goes straight to the disk, as elements of the tensor: whole blocks.
Extent whole_blocks(const StoredTensor&, Extent run);

// Writes the whole blocks of this rank's runs, in portions of so many values at most, which the passage takes where they do not lie ready. The last
// rank of a tensor puts its checksum in its place. Every rank calls, with its own turns; throws where this rank has failed, after it has handed on
// all that others wait for.
void write_in_order(const Collectives&, DirectFile&, const std::vector<StateTensor>&, const std::vector<Turn>&, const PiecesOf&, Arena&,
                    const Passage&, std::int64_t portion, std::span<std::int64_t> checksums);

}  // namespace quadrille
