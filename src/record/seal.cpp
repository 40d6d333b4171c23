#include "record/seal.hpp"

#include "base/error.hpp"

#include <xxhash.h>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace quadrille {
namespace {

constexpr std::string_view mark = "\nxxh3-64";
constexpr std::size_t seal_bytes = 16;

std::array<std::byte, seal_bytes> seal_of(const std::byte* bytes, std::size_t count) {
    static_assert(std::endian::native == std::endian::little);
    const std::uint64_t hash = XXH3_64bits(bytes, count);
    std::array<std::byte, seal_bytes> seal;
    std::memcpy(seal.data(), mark.data(), mark.size());
    std::memcpy(seal.data() + mark.size(), &hash, sizeof hash);
    return seal;
}

}  // namespace

std::vector<std::byte> sealed(std::vector<std::byte> bytes) {
    const auto seal = seal_of(bytes.data(), bytes.size());
    bytes.insert(bytes.end(), seal.begin(), seal.end());
    return bytes;
}

std::vector<std::byte> unsealed(const std::string& file, std::vector<std::byte> bytes) {
    const auto fail = [&](const char* why) { throw Error(Exit::io_failed, fmt::format("{}: {}", file, why)); };
    if (bytes.empty()) fail("is empty");
    if (bytes.size() < seal_bytes) fail("is too short for a record: truncated, or another file");
    const std::size_t body = bytes.size() - seal_bytes;
    if (std::memcmp(bytes.data() + body, mark.data(), mark.size()) != 0)
        fail("does not end with its checksum: truncated, changed by another program, or not a record");
    const auto seal = seal_of(bytes.data(), body);
    if (std::memcmp(seal.data(), bytes.data() + body, seal_bytes) != 0) fail("is damaged: its checksum fails");
    bytes.resize(body);
    return bytes;
}

}  // namespace quadrille
