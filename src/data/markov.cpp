#include "data/markov.hpp"

#include <algorithm>
#include <cmath>

namespace quadrille {

namespace {
constexpr std::uint64_t step_stream = 0x3A2C0E01, offset_stream = 0x3A2C0E02, sample_stream = 0x3A2C0E03;
}

MarkovChain::MarkovChain(std::uint64_t seed, std::int64_t vocab_size)
    : vocab_size_(vocab_size), branches_(std::min<std::int64_t>(vocab_size, 4)), step_(random_key(seed, step_stream), vocab_size) {
    // Sixteenths, so that four random bits draw a branch without bias and the entropy is exact.
    constexpr std::array<std::array<std::int64_t, 4>, 4> weights = {{{16, 0, 0, 0}, {12, 4, 0, 0}, {8, 4, 4, 0}, {8, 4, 2, 2}}};
    sixteenths_ = weights[static_cast<std::size_t>(branches_ - 1)];
    const Permutation offsets(random_key(seed, offset_stream), vocab_size);
    for (std::int64_t k = 0; k < branches_; ++k) offset_[static_cast<std::size_t>(k)] = offsets(k);
}

double MarkovChain::entropy() const {
    double sum = 0;
    for (std::int64_t k = 0; k < branches_; ++k) sum -= probability(k) * std::log(probability(k));
    return sum;
}

double MarkovChain::probability(std::int64_t k) const {
    return static_cast<double>(sixteenths_[static_cast<std::size_t>(k)]) / 16;
}

std::int32_t MarkovChain::successor(std::int32_t token, std::int64_t k) const {
    return static_cast<std::int32_t>((step_(token) + offset_[static_cast<std::size_t>(k)]) % vocab_size_);
}

std::int32_t MarkovChain::first(std::uint64_t bits) const {
    return static_cast<std::int32_t>(bits % static_cast<std::uint64_t>(vocab_size_));
}

std::int32_t MarkovChain::next(std::int32_t token, std::uint64_t bits) const {
    std::int64_t k = 0;
    for (auto left = static_cast<std::int64_t>(bits >> 60); left >= sixteenths_[static_cast<std::size_t>(k)]; ++k)
        left -= sixteenths_[static_cast<std::size_t>(k)];
    return successor(token, k);
}

MarkovSamples::MarkovSamples(const MarkovChain& chain, std::uint64_t seed, std::uint64_t stream, std::int64_t seq_length,
                             std::optional<std::int32_t> end_of_document)
    : SampleSet(seq_length), chain_(chain), seed_(seed), stream_(stream), end_of_document_(end_of_document) {}

void MarkovSamples::read(std::int64_t sample, Window& out) const {
    require(sample >= 0 && sample < count(), "no such sample");
    const std::uint64_t key = random_key(seed_, sample_stream, stream_, sample);
    out.length = seq_length() + 1;
    std::int32_t token = 0;
    for (std::size_t i = 0; i < out.tokens.size(); ++i) {
        token = i == 0 ? chain_.first(random_bits(key, 0)) : chain_.next(token, random_bits(key, i));
        out.tokens[i] = token;
    }
    std::fill(out.document_start.begin(), out.document_start.end(), 0);
    if (end_of_document_) mark_documents_after(*end_of_document_, out);
}

}  // namespace quadrille
