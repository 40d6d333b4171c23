// Counter-based random numbers: a pure function of (key, element), so every rank, grid and recomputation draws the same.
// The mixer is splitmix64's finalizer (Steele, Lea, Flood 2014). Not for cryptography.
#pragma once
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

namespace quadrille {

constexpr std::uint64_t mix64(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

// A key made of several numbers, in order: random_key(seed, step, stream).
template <class... T>
constexpr std::uint64_t random_key(T... part) {
    std::uint64_t key = 0x51AD2111E5EED5ull;
    ((key = mix64((key ^ static_cast<std::uint64_t>(part)) + 0x9E3779B97F4A7C15ull)), ...);
    return key;
}

constexpr std::uint64_t hash_text(std::string_view text) {
    std::uint64_t h = 0xCBF29CE484222325ull;  // FNV-1a
    for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
    return mix64(h);
}

// 64 uniform bits for one element of the stream `key`. Elements are counted on by the key: those of `key` from n on are those of the key
// key + n random_step from 0 on, modulo 2^64.
constexpr std::uint64_t random_step = 0x9E3779B97F4A7C15ull;
constexpr std::uint64_t random_bits(std::uint64_t key, std::uint64_t element) {
    return mix64(key + element * random_step);
}

// True with probability 1 - rate: dropout keeps this element. `threshold` is keep_threshold(rate).
constexpr std::uint32_t keep_threshold(double rate) { return static_cast<std::uint32_t>(rate * 4294967296.0); }
constexpr bool keeps(std::uint64_t key, std::uint64_t element, std::uint32_t threshold) {
    return static_cast<std::uint32_t>(random_bits(key, element) >> 32) >= threshold;
}

// Uniform in [-1, 1) for one element.
constexpr double random_uniform(std::uint64_t key, std::uint64_t element) {
    return static_cast<double>(random_bits(key, element) >> 11) * 0x1p-52 - 1.0;
}

// A standard normal deviate for one element (Box-Muller).
inline double random_normal(std::uint64_t key, std::uint64_t element) {
    const std::uint64_t a = random_bits(key, 2 * element), b = random_bits(key, 2 * element + 1);
    const double u = (static_cast<double>(a >> 11) + 1.0) * 0x1p-53, v = static_cast<double>(b >> 11) * 0x1p-53;
    return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

}  // namespace quadrille
