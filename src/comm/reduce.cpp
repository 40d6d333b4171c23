#include "comm/reduce.hpp"

#include <bit>

#include "base/error.hpp"

namespace quadrille {
namespace {

// The two halves of bf16's conversions without branches, so that the loops vectorise; same bits as struct bf16.
float widen(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
std::uint16_t narrow(float x) {
    const auto u = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t rounded = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16, nan = (u >> 16) | 0x40u;
    return static_cast<std::uint16_t>((u & 0x7FFFFFFFu) > 0x7F800000u ? nan : rounded);
}

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

// T: as stored; the arithmetic is widened and narrowed where T is bf16's bits.
template <class T>
T load(T x) {
    return x;
}
float load(std::uint16_t x) { return widen(x); }
template <class T>
void store(T& to, T x) {
    to = x;
}
void store(std::uint16_t& to, float x) { to = narrow(x); }

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
        case DType::bf16: return loop<std::uint16_t>(op, a, b, out, count);
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
