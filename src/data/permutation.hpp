// A pseudo-random permutation of [0, size) that is a pure function of (key, index): no table, so it can be entered anywhere in
// O(1) and is the same on every rank. A balanced Feistel network over the next even number of bits, with cycle walking
// (Black, Rogaway 2002): outputs beyond the end are fed back, fewer than four rounds of it on average. Not for cryptography.
#pragma once
#include "base/error.hpp"
#include "base/random.hpp"

#include <bit>
#include <cstdint>

namespace quadrille {

class Permutation {
  public:
    // size >= 1, at most 2^62.
    Permutation(std::uint64_t key, std::int64_t size) : key_(key), size_(static_cast<std::uint64_t>(size)) {
        require(size >= 1 && size <= (std::int64_t{1} << 62), "a permutation has 1 to 2^62 elements");
        half_bits_ = (std::bit_width(size_ - 1) + 1) / 2;
        half_mask_ = (std::uint64_t{1} << half_bits_) - 1;
    }

    // Where index goes: a bijection of [0, size).
    std::int64_t operator()(std::int64_t index) const {
        require(index >= 0 && static_cast<std::uint64_t>(index) < size_, "index outside of the permutation");
        std::uint64_t x = static_cast<std::uint64_t>(index);
        do x = scramble(x);
        while (x >= size_);
        return static_cast<std::int64_t>(x);
    }

  private:
    std::uint64_t scramble(std::uint64_t x) const {
        std::uint64_t left = x >> half_bits_, right = x & half_mask_;
        for (std::uint64_t round = 0; round < rounds; ++round) {
            const std::uint64_t next = left ^ (random_bits(key_ + round, right) >> 32 & half_mask_);
            left = right;
            right = next;
        }
        return left << half_bits_ | right;
    }

    static constexpr std::uint64_t rounds = 8;
    std::uint64_t key_, size_, half_mask_ = 0;
    int half_bits_ = 0;
};

}  // namespace quadrille
