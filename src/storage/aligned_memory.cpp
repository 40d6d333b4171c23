#include "storage/aligned_memory.hpp"

#include <cstdlib>
#include <cstring>

#include "base/error.hpp"

namespace quadrille {

void FreeMemory::operator()(std::byte* memory) const { std::free(memory); }

AlignedMemory aligned_memory(std::int64_t bytes, std::string_view purpose) {
    const auto size = static_cast<std::size_t>(aligned_up(bytes, file_alignment));
    void* memory = std::aligned_alloc(static_cast<std::size_t>(file_alignment), size);
    if (memory == nullptr) throw Error(Exit::no_memory, fmt::format("no {} bytes of memory {}", bytes, purpose));
    return AlignedMemory(static_cast<std::byte*>(std::memset(memory, 0, size)));
}

}  // namespace quadrille
