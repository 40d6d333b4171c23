// Copies that go past the caches. Whoever writes more than they hold would otherwise have every line read from memory before it is
// overwritten, and find none of them there afterwards.
#pragma once
#include <cstddef>

namespace quadrille {

// to = from, of equal length and without overlap; complete for other threads once anything released later is seen.
void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes);

}  // namespace quadrille
