#include "cpu/initial_values.hpp"
#include "base/random.hpp"

namespace quadrille {
namespace {

template <class Draw>
void fill(float* dst, std::span<const Run> runs, std::uint64_t key, double scale, Draw draw) {
#pragma omp parallel
    for (const Run& run : runs) {
#pragma omp for schedule(static) nowait
        for (std::int64_t i = 0; i < run.count; ++i) {
            const auto element = static_cast<std::uint64_t>(run.element + i);
            dst[run.offset + i] = static_cast<float>(scale * draw(key, element));
        }
    }
}

}  // namespace

void fill_normal(float* dst, std::span<const Run> runs, std::uint64_t key, double deviation) { fill(dst, runs, key, deviation, random_normal); }
void fill_uniform(float* dst, std::span<const Run> runs, std::uint64_t key, double bound) { fill(dst, runs, key, bound, random_uniform); }

}  // namespace quadrille
