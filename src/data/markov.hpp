// Synthetic samples: a fixed Markov chain over the vocabulary, known exactly. Owns the chain and its entropy; needs no files.
//
// From token v the next is (π(v) + o_k) mod V with probability w_k, where π is a permutation of the vocabulary, o_k are distinct
// offsets, and w = (8, 4, 2, 2)/16 (fewer branches in tiny vocabularies). The successors of a token are distinct, so the entropy rate is
// H(w), 1.75·ln 2 = 1.213 nats; the step is doubly stochastic, so single tokens are uniform and a model that sees no context
// stays at ln V. Each sample begins anew with a uniform token, so it is a function of (seed, stream, sample) alone.
#pragma once
#include "data/permutation.hpp"
#include "data/samples.hpp"

#include <array>
#include <cstdint>
#include <optional>

namespace quadrille {

class MarkovChain {
  public:
    MarkovChain(std::uint64_t seed, std::int64_t vocab_size);
    std::int64_t vocab_size() const { return vocab_size_; }
    std::int64_t branches() const { return branches_; }
    double entropy() const;  // nats per token

    // The k-th successor of a token (0 ≤ k < branches), and its probability.
    std::int32_t successor(std::int32_t token, std::int64_t k) const;
    double probability(std::int64_t k) const;

    std::int32_t first(std::uint64_t bits) const;                      // uniform over the vocabulary
    std::int32_t next(std::int32_t token, std::uint64_t bits) const;   // from 64 uniform bits

  private:
    std::int64_t vocab_size_, branches_;
    Permutation step_;
    std::array<std::int64_t, 4> offset_{}, sixteenths_{};
};

class MarkovSamples final : public SampleSet {
  public:
    // Streams are disjoint draws from one chain: 0 trains, 1 is held out. With end_of_document, a document ends with that token.
    MarkovSamples(const MarkovChain& chain, std::uint64_t seed, std::uint64_t stream, std::int64_t seq_length,
                  std::optional<std::int32_t> end_of_document = std::nullopt);
    std::int64_t count() const override { return (std::int64_t{1} << 62) / seq_length(); }  // without end, in practice
    std::int64_t tokens() const override { return count() * seq_length(); }
    void read(std::int64_t sample, Window& out) const override;

  private:
    MarkovChain chain_;
    std::uint64_t seed_, stream_;
    std::optional<std::int32_t> end_of_document_;
};

}  // namespace quadrille
