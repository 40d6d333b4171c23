// Memory that messages pass through: reserved once, on huge pages where the system has them, touched at once so that no move
// pays for first use. Owns the pages; knows nothing of moves.
#pragma once
#include <cstddef>
#include <cstdint>

namespace quadrille {

class Staging {
  public:
    Staging() = default;
    // Error{no_memory} if the system refuses.
    explicit Staging(std::int64_t bytes);
    ~Staging();
    Staging(Staging&& other) noexcept;
    Staging& operator=(Staging&& other) noexcept;

    std::byte* data() const { return data_; }

  private:
    std::byte* data_ = nullptr;
    std::int64_t bytes_ = 0;
};

}  // namespace quadrille
