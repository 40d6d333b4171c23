#include "data/batch.hpp"

#include "data/permutation.hpp"

#include <algorithm>
#include <xxhash.h>

namespace quadrille {

namespace {
constexpr std::uint64_t shuffle_stream = 0xDA7A0DE2;  // keeps the order apart from other uses of the seed
}

void Batch::resize(std::int64_t rows, std::int64_t positions) {
    sequences = rows;
    seq_length = positions;
    const auto n = static_cast<std::size_t>(rows * positions);
    tokens.resize(n);
    targets.resize(n);
    mask.resize(n);
    document_start.resize(n);
}

BatchReader::BatchReader(std::shared_ptr<const SampleSet> samples, SampleOrder order, std::int64_t global_batch, bool shuffle,
                         std::uint64_t seed, DataPosition begin)
    : samples_(std::move(samples)), order_(order), global_batch_(global_batch), shuffle_(shuffle), seed_(seed), begin_(begin) {
    require(global_batch >= 1, "a global batch has one sequence or more");
    require(begin.step >= 0 && begin.sequences >= 0, "data begins at its first sequence or later");
}

std::int64_t BatchReader::read_before(std::int64_t step) const {
    require(step >= begin_.step, "a step before the reader's first");
    return begin_.sequences + (step - begin_.step) * global_batch_;
}

std::int64_t BatchReader::batches() const {
    if (order_ == SampleOrder::training) return INT64_MAX;
    return (samples_->count() - 1) / global_batch_ + 1;
}

std::optional<std::int64_t> BatchReader::sample(std::int64_t step, std::int64_t index) const {
    require(step >= 0 && index >= 0 && index < global_batch_, "a sequence outside of the global batch");
    const std::int64_t position = read_before(step) + index, n = samples_->count();
    if (order_ == SampleOrder::evaluation) return position < n ? std::optional(position) : std::nullopt;
    const std::int64_t epoch = position / n, place = position % n;
    if (!shuffle_) return place;
    return Permutation(random_key(seed_, shuffle_stream, epoch), n)(place);
}

void BatchReader::read(std::int64_t step, std::span<const std::int64_t> index_in_batch, Batch& out) const {
    out.resize(static_cast<std::int64_t>(index_in_batch.size()), samples_->seq_length());
    out.counted = 0;
    out.hash = 0;
    for (std::size_t row = 0; row < index_in_batch.size(); ++row)
        read_row(step, index_in_batch[row], static_cast<std::int64_t>(row), out);
}

void BatchReader::read_row(std::int64_t step, std::int64_t index, std::int64_t row, Batch& out) const {
    const auto s = static_cast<std::size_t>(out.seq_length), first = static_cast<std::size_t>(row) * s;
    std::vector<std::int32_t> tokens(s + 1), starts(s + 1);
    Window window{.tokens = tokens, .document_start = starts};
    if (const auto number = sample(step, index)) samples_->read(*number, window);
    for (std::size_t i = 0; i < s; ++i) {
        const bool real = i + 1 < static_cast<std::size_t>(window.length);
        const bool crosses = starts[i + 1] == static_cast<std::int32_t>(i + 1);  // the target begins another document
        out.tokens[first + i] = tokens[i];
        out.targets[first + i] = tokens[i + 1];
        out.mask[first + i] = real && !crosses;
        out.document_start[first + i] = starts[i];
        out.counted += real && !crosses;
    }
    out.hash += XXH3_64bits_withSeed(tokens.data(), static_cast<std::size_t>(window.length) * sizeof(std::int32_t),
                                     mix64(static_cast<std::uint64_t>(index) + 1));
}

}  // namespace quadrille
