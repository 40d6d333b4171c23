// What the kernel tests share: operands as stored bytes of exact size (so that AddressSanitizer sees a step too far), their
// values in float64, comparison, central differences, and the same run on several numbers of threads.
#pragma once
#include "kernels/arithmetic.hpp"
#include "ir/dtype.hpp"
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <doctest.h>
#include <omp.h>
#include <random>
#include <vector>

namespace quadrille::test {

// Memory of exactly `bytes`, filled with NaN, at a multiple of 64 bytes and of no more, as kernels are promised; the guard behind it must survive.
class Workspace {
  public:
    explicit Workspace(std::int64_t bytes) : memory_(static_cast<std::size_t>(bytes) / 4 + 97, std::nanf("")) {
        begin_ = memory_.data() + (256 - reinterpret_cast<std::uintptr_t>(memory_.data()) % 256) % 256 / 4 + 16;
        guard_ = begin_ + (bytes + 3) / 4;
        std::fill_n(guard_, 16, 1234.5f);
    }
    ~Workspace() { CHECK(std::all_of(guard_, guard_ + 16, [](float x) { return x == 1234.5f; })); }
    Workspace(const Workspace&) = delete;
    Workspace& operator=(const Workspace&) = delete;
    void* data() { return begin_; }

  private:
    std::vector<float> memory_;
    float *begin_, *guard_;
};

using Values = std::vector<double>;

// A buffer of f32, bf16 or f16 elements.
struct Stored {
    DType t = DType::f32;
    std::vector<unsigned char> bytes;
    void* data() { return bytes.data(); }
    const void* data() const { return bytes.data(); }
    std::int64_t size() const { return static_cast<std::int64_t>(bytes.size()) / bytes_of(t); }
};

inline Stored stored(const Values& x, DType t) {
    Stored s{t, std::vector<unsigned char>(x.size() * static_cast<std::size_t>(bytes_of(t)))};
    for (std::size_t i = 0; i < x.size(); ++i) {
        const auto put = [&](auto y) { std::memcpy(s.bytes.data() + i * sizeof y, &y, sizeof y); };
        const float f = static_cast<float>(x[i]);
        if (t == DType::f32) put(f);
        if (t == DType::bf16) put(bf16(f));
        if (t == DType::f16) put(f16(f));
    }
    return s;
}

// `count` elements of garbage that a kernel must overwrite.
inline Stored garbage(std::int64_t count, DType t) { return stored(Values(static_cast<std::size_t>(count), 5.0e4), t); }

inline Values values(const Stored& s) {
    Values x(static_cast<std::size_t>(s.size()));
    for (std::size_t i = 0; i < x.size(); ++i) {
        const auto taken = [&](auto y) { return std::memcpy(&y, s.bytes.data() + i * sizeof y, sizeof y), static_cast<float>(y); };
        x[i] = s.t == DType::f32 ? taken(float{}) : s.t == DType::bf16 ? taken(bf16{}) : taken(f16{});
    }
    return x;
}

inline Values normal(std::int64_t count, unsigned seed, double deviation = 1.0) {
    std::mt19937 engine(seed);
    std::normal_distribution<double> draw(0.0, deviation);
    Values x(static_cast<std::size_t>(count));
    for (double& v : x) v = draw(engine);
    return x;
}

// A random operand: what is stored, and exactly those values in float64.
struct Operand {
    Stored stored;
    Values x;
    const void* data() const { return stored.data(); }
};
inline Operand operand(std::int64_t count, DType t, unsigned seed, double deviation = 1.0) {
    Operand o{test::stored(normal(count, seed, deviation), t), {}};
    o.x = values(o.stored);
    return o;
}

// Half a unit in the last place of a stored result, relative: 2^-24, 2^-8 or, above f16's subnormals, 2^-11.
inline double rounding(DType t) { return t == DType::f32 ? 0x1p-24 : t == DType::bf16 ? 0x1p-8 : 0x1p-11; }

// The largest |got - want| / (relative |want| + absolute); a test demands at most 1. NaN counts as infinite.
inline double error(const Values& got, const Values& want, double relative, double absolute) {
    REQUIRE(got.size() == want.size());
    double worst = 0.0;
    for (std::size_t i = 0; i < got.size(); ++i) {
        const double e = std::abs(got[i] - want[i]) / (relative * std::abs(want[i]) + absolute);
        worst = std::isnan(e) ? INFINITY : std::max(worst, e);
    }
    return worst;
}
inline double error(const Stored& got, const Values& want, double relative, double absolute) {
    return error(values(got), want, relative, absolute);
}

// df/dx by central differences of a float64 function.
template <class F>
Values central_difference(F f, Values x, double step = 1e-5) {
    Values d(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
        const double at = x[i];
        x[i] = at + step;
        const double above = f(x);
        x[i] = at - step;
        const double below = f(x);
        x[i] = at;
        d[i] = (above - below) / (2.0 * step);
    }
    return d;
}

inline double dot(const Values& a, const Values& b) {
    double sum = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

// Runs `run(bytes)` with 1, 2, 3 and 4 threads; true if the bytes it returns are the same.
template <class F>
bool same_bits_on_any_threads(F run) {
    const int before = omp_get_max_threads();
    omp_set_num_threads(1);
    const std::vector<unsigned char> one = run();
    bool same = true;
    for (int n = 2; n <= 4; ++n) {
        omp_set_num_threads(n);
        same = same && run() == one;
    }
    omp_set_num_threads(before);
    return same;
}

constexpr std::int64_t odd_sizes[] = {1, 3, 60, 257};
constexpr DType storage_types[] = {DType::f32, DType::bf16, DType::f16};

}  // namespace quadrille::test
