// Tensors between the ranks and a checkpoint's file, in rounds: each is one call of every rank, of so many values at most, for whatever part of a
// tensor the rank has; a rank with none calls all the same. So calls match by construction and none is larger than the memory it passes through.
#pragma once
#include "checkpoint/state_tensors.hpp"
#include "checkpoint/transport.hpp"
#include "checkpoint/values.hpp"

namespace quadrille {

// An order-free sum of values and their places, each value's bits by an odd number of its element: what all ranks have written together can be
// compared with what is read back, whoever wrote what. A value that is lost, twice there or elsewhere changes it.
std::uint64_t fingerprint(std::int64_t first_element, const float* values, std::int64_t count);

// The rounds of each tensor, alike on all ranks, and the most values of one.
struct Rounds {
    std::int64_t values = 0;
    std::vector<std::int64_t> of;  // by tensor
};

// For so many values of each tensor on this rank, of which a round may take `most` here. Collective.
Rounds rounds_of(const Collectives&, std::vector<std::int64_t> counts, std::int64_t most);

// Values begin .. begin + count of a tensor's share in their order, which are those of `part`.
using ValuesOf = std::function<const float*(std::size_t tensor, std::int64_t begin, const Pieces& part)>;
using PiecesOf = std::function<Pieces(std::size_t tensor)>;

// Writes this rank's pieces of every tensor into a file that has their datasets. Returns their fingerprints, summed over this rank's values.
// Collective; throws Error where this rank has failed, after all its calls.
std::vector<std::uint64_t> write_tensors(const Collectives&, const std::filesystem::path& file, const Hints&, const std::vector<StateTensor>&,
                                         const Rounds&, const PiecesOf&, const ValuesOf&);

// Reads the pieces' values; `take` gets them, a round at a time. Collective; throws as write_tensors.
using Take = std::function<void(const float* values, const Pieces& part)>;
void read_tensors(const Collectives&, const std::filesystem::path& file, const Hints&, const std::vector<StateTensor>&, const Rounds&,
                  const PiecesOf&, const Passage&, const Take& take);

}  // namespace quadrille
