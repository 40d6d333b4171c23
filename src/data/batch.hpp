// A batch of sequences, and the reader that fills one. Owns which sample stands where in which step's global batch, and what is
// counted; the tokens themselves come from a SampleSet. The order is a function of (seed, epoch, position), never of the grid:
// every rank can ask for any sequences of any step, in O(1) plus the reading.
//
// Rule for ragged ends: training position p = step·G + index in batch (G the global batch size; a run that is gone on with counts from where it
// stood) is the sample at place p mod n
// of epoch p div n (n samples; each epoch its own permutation), so a global batch may straddle epochs, is always full, and the
// number of steps never depends on the data or the grid. Evaluation takes samples 0, 1, 2, … once each; what is missing in its
// last batch is filled with sequences that count nothing.
#pragma once
#include "data/samples.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace quadrille {

// b sequences of s positions, each array row-major [b, s]. Always whole sequences: who needs a part of the sequence dim cuts it.
struct Batch {
    std::int64_t sequences = 0, seq_length = 0;
    std::vector<std::int32_t> tokens;          // input at each position; 0 where there is none
    std::vector<std::int32_t> targets;         // the token after it; 0 where there is none
    std::vector<std::uint8_t> mask;            // 1: the target counts in the loss
    std::vector<std::int32_t> document_start;  // position in this sequence where the position's document starts, never falling
                                               // along a row; all 0 unless documents are masked
    std::int64_t counted = 0;                  // ones in mask
    std::uint64_t hash = 0;                    // sum mod 2^64 over the sequences of XXH3-64(index in batch, tokens): the sum over
                                               // dp ranks is the step's data_hash, the same on every grid
    void resize(std::int64_t sequences, std::int64_t seq_length);
};

enum class SampleOrder { training, evaluation };

// Where in the order of its data a run begins: after `step` steps, in which so many sequences were read, by batches of whatever size.
struct DataPosition {
    std::int64_t step = 0, sequences = 0;
};

class BatchReader {
  public:
    // `samples`: what is read, shared by all readers. `global_batch`: sequences a step. Shuffle, seed and where to begin serve training only.
    BatchReader(std::shared_ptr<const SampleSet> samples, SampleOrder order, std::int64_t global_batch, bool shuffle = false,
                std::uint64_t seed = 0, DataPosition begin = {});

    // Sequences read before step `step` (from 0, and not before the one where it begins), since the order's beginning.
    std::int64_t read_before(std::int64_t step) const;
    // The sample at `index` (0 ≤ index < global batch) of step `step`; none where evaluation has run out.
    std::optional<std::int64_t> sample(std::int64_t step, std::int64_t index) const;

    // Fills out with the given sequences of the step's global batch, in that order. Not collective; threads may share a reader.
    // Throws Error{io_failed} naming file, offset and value on a token id outside of the vocabulary.
    void read(std::int64_t step, std::span<const std::int64_t> index_in_batch, Batch& out) const;

    // Evaluation: global batches that hold at least one sample. Training: no end.
    std::int64_t batches() const;
    std::int64_t global_batch() const { return global_batch_; }
    const SampleSet& samples() const { return *samples_; }

  private:
    void read_row(std::int64_t step, std::int64_t index, std::int64_t row, Batch& out) const;

    std::shared_ptr<const SampleSet> samples_;
    SampleOrder order_;
    std::int64_t global_batch_;
    bool shuffle_;
    std::uint64_t seed_;
    DataPosition begin_;
};

}  // namespace quadrille
