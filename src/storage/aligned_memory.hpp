// What direct access demands of places in memory and in a file, and memory that meets it.
#pragma once
#include "base/rounding.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace quadrille {

// What a direct transfer's place and length in the file are multiples of: every device that is in use takes it.
constexpr std::int64_t file_alignment = 4096;

// Zeroed memory at a multiple of file_alignment, of which every page has been touched. Error{no_memory}, with what it is for, if there is none.
struct FreeMemory {
    void operator()(std::byte* memory) const;
};
using AlignedMemory = std::unique_ptr<std::byte[], FreeMemory>;
AlignedMemory aligned_memory(std::int64_t bytes, std::string_view purpose);

}  // namespace quadrille
