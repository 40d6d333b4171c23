// The memory of one rank of the interpreter.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace quadrille::test {

[[noreturn]] inline void fail(const std::string& why) { throw std::runtime_error(why); }

// One rank's bytes. The value of an element stands at its first byte; the others carry a mark, so that one that was written over
// in part, or with another element size, is unreadable.
class Arena {
  public:
    explicit Arena(std::int64_t bytes) : value_(static_cast<std::size_t>(bytes)), mark_(static_cast<std::size_t>(bytes), 0) {}

    void write(std::int64_t at, int size, double x) {
        for (int k = 0; k < size; ++k)
            mark_.at(static_cast<std::size_t>(at + k)) = static_cast<std::uint8_t>(k == 0 ? size : 16 + k);
        value_[static_cast<std::size_t>(at)] = x;
    }
    std::optional<double> read(std::int64_t at, int size) const {
        for (int k = 0; k < size; ++k)
            if (mark_.at(static_cast<std::size_t>(at + k)) != (k == 0 ? size : 16 + k)) return {};
        return value_[static_cast<std::size_t>(at)];
    }
    void poison(std::int64_t begin, std::int64_t end) {
        if (begin < 0 || end > static_cast<std::int64_t>(mark_.size())) fail("bytes beyond the arena");
        std::fill(mark_.begin() + begin, mark_.begin() + end, std::uint8_t{0});
    }

  private:
    std::vector<double> value_;
    std::vector<std::uint8_t> mark_;
};

}  // namespace quadrille::test
