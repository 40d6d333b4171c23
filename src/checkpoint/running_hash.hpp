// The XXH3-64 of bytes that come a part at a time, also from one process after another.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

struct XXH3_state_s;

namespace quadrille {

class RunningHash {
  public:
    RunningHash();
    // Goes on from what another process of this program has handed on.
    explicit RunningHash(std::span<const std::byte> handed);
    void add(std::span<const std::byte> part);
    std::uint64_t value() const;

    std::vector<std::byte> hand_on() const;
    static std::int64_t handed_bytes();

  private:
    struct Free { void operator()(XXH3_state_s* state) const; };
    std::unique_ptr<XXH3_state_s, Free> state_;
};

}  // namespace quadrille
