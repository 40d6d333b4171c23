// Initial values of parameters: random deviates over flat buffers, the same bits for any number of OpenMP threads.
#pragma once
#include <cstdint>
#include <span>

namespace quadrille {

// `count` elements that are consecutive both in the local buffer and in the global parameter.
struct Run {
    std::int64_t offset = 0;   // first element in the local buffer
    std::int64_t element = 0;  // its index in the global parameter
    std::int64_t count = 0;
};

// dst[offset + i] = deviation * random_normal(key, element + i) for every run: the same values on every grid.
void fill_normal(float* dst, std::span<const Run> runs, std::uint64_t key, double deviation);
// The same with values uniform in [-bound, bound).
void fill_uniform(float* dst, std::span<const Run> runs, std::uint64_t key, double bound);

}  // namespace quadrille
