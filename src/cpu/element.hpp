// From a run-time DType to the element type of a kernel, and the loop that every elementwise kernel is. For src/cpu only.
#pragma once
#include "base/error.hpp"
#include "kernels/arithmetic.hpp"
#include "ir/dtype.hpp"
#include <cstdint>

namespace quadrille {

// Calls f(float{}), f(bf16{}) or f(f16{}), a tag of the element type.
template <class F>
void with_type(DType t, F&& f) {
    switch (t) {
        case DType::f32: return f(float{});
        case DType::bf16: return f(bf16{});
        case DType::f16: return f(f16{});
        default: require(false, "cpu: a kernel's elements are f32, bf16 or f16");
    }
}

// Below this many elements a loop stays on the calling thread: waking a team costs some microseconds.
constexpr std::int64_t parallel_grain = 16384;

// f(i) for every i, on the team, vectorised. f must not depend on another i.
template <class F>
void each_element(std::int64_t count, F f) {
#pragma omp parallel if (count >= parallel_grain)
    {
        const F mine = f;  // a copy on the thread's own stack: its captured pointers stay in registers
#pragma omp for simd schedule(static)
        for (std::int64_t i = 0; i < count; ++i) mine(i);
    }
}

}  // namespace quadrille
