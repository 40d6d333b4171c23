#include "base/out_of_memory.hpp"

#include <cstdio>
#include <cstdlib>

namespace quadrille {

OutOfMemory::OutOfMemory(std::size_t bytes) {
    std::snprintf(text_.data(), text_.size(), "out of memory: %zu bytes were asked for and cannot be had", bytes);
}

}  // namespace quadrille

// The library's own say no more than "std::bad_alloc". Arrays, and news that must not throw, come through these two as well.
void* operator new(std::size_t bytes) {
    if (void* const p = std::malloc(bytes ? bytes : 1)) return p;
    throw quadrille::OutOfMemory(bytes);
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
