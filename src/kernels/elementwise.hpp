// What dropout and rotary positions are about: one rank's local block and where it lies in the global tensor.
#pragma once
#include "ir/dtype.hpp"
#include <cstdint>

namespace quadrille {

// The local block x[b,s,h] of a global tensor [samples, global_s, global_h] and the global index of each of its elements.
struct Dropout {
    std::int64_t b = 0, s = 0, h = 0;
    const std::int64_t* sample_index = nullptr;   // [b]
    const std::int64_t* position = nullptr;       // [s]
    const std::int64_t* channel_index = nullptr;  // [h]
    std::int64_t global_s = 0, global_h = 0;
    double rate = 0.0;      // in [0, 1)
    std::uint64_t key = 0;  // random_key(seed, step, stream)
    DType t = DType::f32;
};

struct Rotary {
    std::int64_t b = 0, s = 0, n = 0, d = 0;
    const std::int64_t* position = nullptr;  // [s], global
    double base = 10000.0;
    bool inverse = false;
    DType t = DType::f32;
};

}  // namespace quadrille
