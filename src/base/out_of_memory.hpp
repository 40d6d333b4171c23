// Memory that is refused, with the number of bytes asked. Owns the program's `operator new`; decides nothing.
#pragma once
#include <array>
#include <cstddef>
#include <new>

namespace quadrille {

// What every refused `new` of the program throws (but over-aligned ones, which throw a plain std::bad_alloc). Allocates nothing.
class OutOfMemory : public std::bad_alloc {
  public:
    explicit OutOfMemory(std::size_t bytes);
    const char* what() const noexcept override { return text_.data(); }

  private:
    std::array<char, 96> text_{};
};

}  // namespace quadrille
