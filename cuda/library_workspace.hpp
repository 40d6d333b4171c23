// Workspace for NVIDIA's libraries, which demand it at a multiple of 256 bytes ("Must be 256B aligned", cublasLtMatmul), where a kernel is handed one
// at a multiple of 64: so much more is asked for that the next such place lies within. Pure.
#pragma once
#include <cstddef>
#include <cstdint>

namespace quadrille::cuda {

constexpr std::int64_t library_alignment = 256;

// Bytes to ask for where a library wants so many.
constexpr std::int64_t bytes_for_library(std::int64_t bytes) { return bytes == 0 ? 0 : bytes + library_alignment - 1; }

// Where the library's begin in what was given.
inline std::byte* place_for_library(void* given) {
    const std::uintptr_t behind = reinterpret_cast<std::uintptr_t>(given) % library_alignment;
    return static_cast<std::byte*>(given) + (behind == 0 ? 0 : library_alignment - behind);
}

}  // namespace quadrille::cuda
