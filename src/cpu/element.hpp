// From a run-time DType to the element type of a kernel, and the loop that every elementwise kernel is. For src/cpu only.
#pragma once
#include "base/error.hpp"
#include "cpu/arithmetic.hpp"
#include "ir/dtype.hpp"
#include <cstdint>

namespace quadrille {

// Calls f(float{}) or f(bf16{}), a tag of the element type.
template <class F>
void with_type(DType t, F&& f) {
    require(t == DType::f32 || t == DType::bf16, "cpu: a kernel's elements are f32 or bf16");
    if (t == DType::f32)
        f(float{});
    else
        f(bf16{});
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
