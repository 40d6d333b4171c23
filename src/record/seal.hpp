// A checksum at the end of a file, so that damage is found before anything tries to understand the file.
//
// The last 16 bytes are the mark "\nxxh3-64" and the XXH3-64 of all bytes before it, little-endian. HDF5 reads no further than
// its own end and does not see them.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace quadrille {

std::vector<std::byte> sealed(std::vector<std::byte> bytes);

// The bytes without their seal. Throws Error{io_failed} naming the file and the reason where the seal is missing or does not
// hold.
std::vector<std::byte> unsealed(const std::string& file, std::vector<std::byte> bytes);

}  // namespace quadrille
