// From a run-time DType to the element type of a kernel. For cuda/ only.
#pragma once
#include "base/error.hpp"
#include "ir/dtype.hpp"

namespace quadrille::cuda {

// Calls f(float{}), f(bf16{}) or f(f16{}), a tag of the element type.
template <class F>
void with_type(DType t, F&& f) {
    switch (t) {
        case DType::f32: return f(float{});
        case DType::bf16: return f(bf16{});
        case DType::f16: return f(f16{});
        default: require(false, "cuda: a kernel's elements are f32, bf16 or f16");
    }
}

// A buffer as elements of T.
template <class T>
const T* of(const void* p) { return static_cast<const T*>(p); }
template <class T>
T* of(void* p) { return static_cast<T*>(p); }

}  // namespace quadrille::cuda
