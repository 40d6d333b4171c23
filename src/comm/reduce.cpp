#include "comm/reduce.hpp"

#include "base/error.hpp"

namespace quadrille {
namespace {

struct Sum {
    template <class T>
    T operator()(T a, T b) const {
        return a + b;
    }
};
struct Max {
    template <class T>
    T operator()(T a, T b) const {
        return a > b || a != a ? a : b;
    }
};

// T: as stored; the arithmetic of 16-bit types is fp32's.
template <class T>
auto load(T x) {
    if constexpr (HalfWidth<T>) return static_cast<float>(x);
    else return x;
}
template <class T, class X>
void store(T& to, X x) {
    to = static_cast<T>(x);
}

// Two loops, since a compiler that may not assume distinct buffers does not vectorise, and a may be out.
template <class T, class Op>
void loop(Op op, const void* a_, const void* b_, void* out_, std::int64_t count) {
    const T* __restrict b = static_cast<const T*>(b_);
    T* __restrict out = static_cast<T*>(out_);
    if (a_ == out_) {
        for (std::int64_t i = 0; i < count; ++i) store(out[i], op(load(out[i]), load(b[i])));
        return;
    }
    const T* __restrict a = static_cast<const T*>(a_);
    for (std::int64_t i = 0; i < count; ++i) store(out[i], op(load(a[i]), load(b[i])));
}

template <class Op>
void by_type(Op op, DType dtype, const void* a, const void* b, void* out, std::int64_t count) {
    switch (dtype) {
        case DType::f32: return loop<float>(op, a, b, out, count);
        case DType::f64: return loop<double>(op, a, b, out, count);
        case DType::i32: return loop<std::int32_t>(op, a, b, out, count);
        case DType::bf16: return loop<bf16>(op, a, b, out, count);
        case DType::f16: return loop<f16>(op, a, b, out, count);
        case DType::u8: break;
    }
    require(false, fmt::format("a reduction cannot be of type {}", name_of(dtype)));
}

}  // namespace

void combine(ReduceOp op, DType dtype, const void* a, const void* b, void* out, std::int64_t count) {
    if (op == ReduceOp::sum) return by_type(Sum{}, dtype, a, b, out, count);
    by_type(Max{}, dtype, a, b, out, count);
}

}  // namespace quadrille
