// The XXH3-64 of bytes that come a part at a time, also from one process after another. Takes no memory but its own: nobody fails to hand it on.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

struct XXH3_state_s;

namespace quadrille {

class RunningHash {
  public:
    static constexpr std::size_t state_bytes = 576;
    using Handed = std::array<std::byte, state_bytes>;

    RunningHash();
    // Goes on from what another process of this program has handed on.
    explicit RunningHash(const Handed&);
    void add(std::span<const std::byte> part);
    std::uint64_t value() const;
    Handed hand_on() const { return state_; }

  private:
    XXH3_state_s* state() { return reinterpret_cast<XXH3_state_s*>(state_.data()); }
    const XXH3_state_s* state() const { return reinterpret_cast<const XXH3_state_s*>(state_.data()); }

    alignas(64) Handed state_{};
};

}  // namespace quadrille
