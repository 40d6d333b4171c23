// Tensors between the ranks and a checkpoint's file, in rounds: each is one call of every rank, of so many values at most, of as many tensors as that
// makes; a rank that has no more calls all the same. So calls match by construction, their number does not grow with that of the tensors, and none is
// larger than the memory it passes through.
#pragma once
#include "checkpoint/collective_file.hpp"
#include "checkpoint/state_tensors.hpp"
#include "checkpoint/values.hpp"

namespace quadrille {

// An order-free sum of values and their places, each value's bits by an odd number of its element: what all ranks have written together can be
// compared with what is read back, whoever wrote what. A value that is lost, twice there or elsewhere changes it.
std::uint64_t fingerprint(std::int64_t first_element, const float* values, std::int64_t count);
// The same of these elements of a tensor, few, as the file has them. Throws as PlainFile::read.
std::uint64_t fingerprint_in(const PlainFile&, const StoredTensor&, const Extents& elements);

// The rounds, by pass: in one, each dataset stands once, so that a round's places in the file ascend; one that stands twice among the tensors is
// moved again in the next.
struct Rounds {
    std::vector<std::int64_t> of;  // by pass, alike on all ranks
    std::int64_t values = 0;       // of a round on this rank, at most
};

// For so many values of each tensor on this rank, of which a round may take `most` here, and 1 GiB. Collective.
Rounds rounds_of(const Collectives&, const std::vector<StateTensor>&, const std::vector<std::int64_t>& counts, std::int64_t most);

// Where the values of each piece of a part of a tensor lie; a round has had `before` others so far.
using ValuesOf = std::function<std::vector<const float*>(const Pieces& part, std::int64_t before)>;

// Writes this rank's pieces of every tensor into a file that has their places. Returns their fingerprints, summed over this rank's values. What is
// written begins its way to the disk at once. Collective; throws where this rank has failed, after all its calls.
std::vector<std::uint64_t> write_tensors(const Collectives&, CollectiveFile&, const std::vector<StateTensor>&, const Rounds&, const PiecesOf&,
                                         const ValuesOf&);

// Reads the pieces' values through the passage; `take` gets them, a part of a tensor at a time, of a dataset that stands twice in its order among the
// tensors. Collective; throws as write_tensors.
using Take = std::function<void(const float* values, const Pieces& part)>;
void read_tensors(const Collectives&, CollectiveFile&, const std::vector<StateTensor>&, const Rounds&, const PiecesOf&, const Passage&,
                  const Take& take);

}  // namespace quadrille
