// Elementwise kernels and bias sums against float64; derivatives against central differences of the float64 function.
// Tolerances: the stored type's rounding, plus 1e-6 for fp32 arithmetic.
#include "base/random.hpp"
#include "kernels/device.hpp"
#include "kernels/reference.hpp"
#include <numeric>

using namespace quadrille;
using namespace quadrille::test;

namespace {

double gelu64(double x) { return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x))); }
double silu64(double x) { return x / (1.0 + std::exp(-x)); }

template <class F>
double slope(F f, double x) {
    return (f(x + 1e-5) - f(x - 1e-5)) / 2e-5;
}

template <class F>
Values mapped(const Values& a, F f) {
    Values y(a.size());
    for (std::size_t i = 0; i < a.size(); ++i) y[i] = f(i, a[i]);
    return y;
}

void column_sum(const void* dy, DType dy_type, void* db, DType db_type, std::int64_t rows, std::int64_t cols, bool accumulate) {
    Workspace workspace(kernels()->column_sum_workspace(rows, cols));
    kernels()->column_sum(dy, dy_type, db, db_type, rows, cols, accumulate, workspace.data());
}

constexpr std::int64_t large = 40001;  // beyond the size from which the team is used

}  // namespace

TEST_CASE("add, gelu, swiglu and their derivatives") {
    for (const DType t : storage_types)
        for (const std::int64_t n : {std::int64_t{1}, std::int64_t{3}, std::int64_t{60}, std::int64_t{257}, large}) {
            const Operand a = operand(n, t, 1, 2.0), b = operand(n, t, 2), d = operand(n, t, 3);
            const double relative = rounding(t) + 1e-6, absolute = 2e-6;
            Stored y = garbage(n, t), z = garbage(n, t);
            kernels()->add(a.data(), b.data(), y.data(), n, t);
            CHECK(error(y, mapped(a.x, [&](std::size_t i, double x) { return x + b.x[i]; }), relative, absolute) <= 1.0);
            kernels()->scale(a.data(), -0.3, y.data(), n, t);
            CHECK(error(y, mapped(a.x, [&](std::size_t, double x) { return -0.3 * x; }), relative, absolute) <= 1.0);
            kernels()->gelu(a.data(), y.data(), n, t);
            CHECK(error(y, mapped(a.x, [&](std::size_t, double x) { return gelu64(x); }), relative, absolute) <= 1.0);
            kernels()->gelu_dx(a.data(), d.data(), y.data(), n, t);
            CHECK(error(y, mapped(a.x, [&](std::size_t i, double x) { return d.x[i] * slope(gelu64, x); }), relative, 1e-5) <= 1.0);
            kernels()->swiglu(a.data(), b.data(), y.data(), n, t);
            CHECK(error(y, mapped(a.x, [&](std::size_t i, double x) { return silu64(x) * b.x[i]; }), relative, absolute) <= 1.0);
            kernels()->swiglu_dx(a.data(), b.data(), d.data(), y.data(), z.data(), n, t);
            CHECK(error(y, mapped(a.x, [&](std::size_t i, double x) { return d.x[i] * b.x[i] * slope(silu64, x); }), relative, 1e-5) <= 1.0);
            CHECK(error(z, mapped(a.x, [&](std::size_t i, double x) { return d.x[i] * silu64(x); }), relative, absolute) <= 1.0);
            y = a.stored;
            kernels()->gelu(y.data(), y.data(), n, t);  // in place
            kernels()->gelu(a.data(), z.data(), n, t);
            CHECK(y.bytes == z.bytes);
        }
}

TEST_CASE("casts round to nearest even, accumulate adds, zero zeroes") {
    for (const DType from : storage_types)
        for (const DType to : storage_types)
            for (const std::int64_t n : {std::int64_t{1}, std::int64_t{257}, large}) {
                const Operand a = operand(n, from, 5), b = operand(n, to, 6);
                Stored y = garbage(n, to);
                kernels()->cast(a.data(), from, y.data(), to, n);
                CHECK(y.bytes == stored(a.x, to).bytes);
                y = b.stored;
                kernels()->accumulate(a.data(), from, y.data(), to, n);
                CHECK(error(y, mapped(a.x, [&](std::size_t i, double x) { return x + b.x[i]; }), rounding(to), 1e-7) <= 1.0);
                kernels()->zero(y.data(), n * bytes_of(to));
                CHECK(y.bytes == std::vector<unsigned char>(y.bytes.size(), 0));
            }
}

TEST_CASE("float64: sums and products as they are") {
    const Values a = normal(257, 14), b = normal(257, 15);
    Values y(a.size());
    kernels()->add(a.data(), b.data(), y.data(), 257, DType::f64);
    CHECK(y == mapped(a, [&](std::size_t i, double x) { return x + b[i]; }));
    kernels()->scale(a.data(), 0.1, y.data(), 257, DType::f64);
    CHECK(y == mapped(a, [&](std::size_t, double x) { return 0.1 * x; }));
}

TEST_CASE("gather takes runs of elements of any size, repeat writes the same row again") {
    std::vector<unsigned char> x(20000);
    std::iota(x.begin(), x.end(), static_cast<unsigned char>(0));
    const std::vector<Extent> extents = {{700, 9}, {3, 1}, {0, 0}, {100, 515}};
    for (const std::int64_t size : {1, 2, 4, 8}) {
        std::vector<unsigned char> want, y(static_cast<std::size_t>(525 * size));
        for (const Extent& e : extents) want.insert(want.end(), x.begin() + e.offset * size, x.begin() + (e.offset + e.count) * size);
        kernels()->gather(x.data(), extents, size, y.data());
        CHECK(y == want);
    }
    const std::vector<std::int64_t> row = {5, 6, 0, 1 << 30, -1};
    std::vector<std::int32_t> rows(5 * 300);
    kernels()->repeat(row.data(), 5, 300, rows.data());
    bool equal = true;
    for (std::size_t i = 0; i < rows.size(); ++i) equal = equal && rows[i] == row[i % 5];
    CHECK(equal);
}

TEST_CASE("add_bias and column_sum") {
    for (const DType t : storage_types)
        for (const std::int64_t rows : odd_sizes)
            for (const std::int64_t cols : odd_sizes) {
                const Operand x = operand(rows * cols, t, 7), bias = operand(cols, t, 8);
                Stored y = garbage(rows * cols, t);
                kernels()->add_bias(x.data(), bias.data(), y.data(), rows, cols, t);
                const auto c = static_cast<std::size_t>(cols);
                CHECK(error(y, mapped(x.x, [&](std::size_t i, double v) { return v + bias.x[i % c]; }), rounding(t), 1e-7) <= 1.0);
                for (const DType out : storage_types)
                    for (const bool accumulating : {false, true}) {
                        const Operand before = operand(cols, out, 9);
                        Values sum = accumulating ? before.x : Values(c, 0.0);
                        for (std::size_t i = 0; i < x.x.size(); ++i) sum[i % c] += x.x[i];
                        Stored db = before.stored;
                        column_sum(x.data(), t, db.data(), out, rows, cols, accumulating);
                        CHECK(error(db, sum, rounding(out), 1e-6 * std::sqrt(static_cast<double>(rows))) <= 1.0);
                    }
            }
}

TEST_CASE("dropout is the mask of the global element, on any cut") {
    // A global [4, 6, 10] tensor; the local block is samples 3, 1, positions 5, 0, 2, channels 4..8.
    const std::vector<std::int64_t> samples = {3, 1}, positions = {5, 0, 2}, channels = {4, 5, 6, 7, 8};
    const std::uint64_t key = random_key(1234, 7, 2);
    for (const DType t : storage_types) {
        const Operand x = operand(2 * 3 * 5, t, 10);
        Dropout d{.b = 2, .s = 3, .h = 5, .sample_index = samples.data(), .position = positions.data(), .channel_index = channels.data()};
        d.global_s = 6, d.global_h = 10, d.rate = 0.3, d.key = key, d.t = t;
        Stored y = garbage(30, t);
        kernels()->dropout(d, x.data(), y.data());
        Values want(30);
        for (std::size_t i = 0; i < 30; ++i) {
            const std::int64_t element = (samples[i / 15] * 6 + positions[i / 5 % 3]) * 10 + channels[i % 5];
            want[i] = keeps(key, static_cast<std::uint64_t>(element), keep_threshold(0.3)) ? x.x[i] / 0.7 : 0.0;
        }
        CHECK(error(y, want, rounding(t) + 2e-7, 1e-30) <= 1.0);
        d.rate = 0.0;
        kernels()->dropout(d, x.data(), y.data());
        CHECK(y.bytes == x.stored.bytes);
    }
}

TEST_CASE("dropout keeps the stated share and depends on the key") {
    const std::int64_t h = 257, s = 100;
    std::vector<std::int64_t> position(s), channel(h);
    std::iota(position.begin(), position.end(), 0);
    std::iota(channel.begin(), channel.end(), 0);
    const std::vector<std::int64_t> sample = {0};
    Dropout d{.b = 1, .s = s, .h = h, .sample_index = sample.data(), .position = position.data(), .channel_index = channel.data()};
    d.global_s = s, d.global_h = h, d.rate = 0.1, d.key = 1;
    const Stored ones = stored(Values(static_cast<std::size_t>(s * h), 1.0), DType::f32);
    Stored y = garbage(s * h, DType::f32), z = y;
    kernels()->dropout(d, ones.data(), y.data());
    const Values v = values(y);
    const double kept = static_cast<double>(std::count_if(v.begin(), v.end(), [](double x) { return x != 0.0; })) / static_cast<double>(s * h);
    CHECK(kept == doctest::Approx(0.9).epsilon(0.01));
    d.key = 2;
    kernels()->dropout(d, ones.data(), z.data());
    CHECK(y.bytes != z.bytes);
}

TEST_CASE("rotary turns pairs half a head apart, at far positions too, and its inverse undoes it") {
    const std::vector<std::int64_t> positions = {0, 7, 1000003};
    for (const DType t : storage_types)
        for (const std::int64_t d : {std::int64_t{2}, std::int64_t{6}, std::int64_t{64}}) {
            const std::int64_t b = 2, s = 3, n = 3, count = b * s * n * d;
            const Operand x = operand(count, t, 11);
            Rotary r{.b = b, .s = s, .n = n, .d = d, .position = positions.data()};
            r.t = t;
            Stored y = garbage(count, t), back = garbage(count, t);
            kernels()->rotary(r, x.data(), y.data());
            Values want(x.x.size());
            for (std::int64_t head = 0; head < b * s * n; ++head)
                for (std::int64_t i = 0; i < d / 2; ++i) {
                    const auto at = static_cast<std::size_t>(head * d + i), other = at + static_cast<std::size_t>(d / 2);
                    const double frequency = std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(d));
                    const double angle = static_cast<double>(positions[head / n % s]) * frequency;
                    want[at] = x.x[at] * std::cos(angle) - x.x[other] * std::sin(angle);
                    want[other] = x.x[other] * std::cos(angle) + x.x[at] * std::sin(angle);
                }
            CHECK(error(y, want, rounding(t), 1e-6) <= 1.0);
            r.inverse = true;
            kernels()->rotary(r, y.data(), back.data());
            CHECK(error(back, x.x, 4 * rounding(t), 4 * rounding(t) * 3.0) <= 1.0);
            Stored in_place = y;
            kernels()->rotary(r, in_place.data(), in_place.data());
            CHECK(in_place.bytes == back.bytes);
        }
}

TEST_CASE("the same bits on any number of threads") {
    for (const DType t : storage_types) {
        const std::int64_t rows = 300, cols = 260, count = rows * cols;
        const Operand x = operand(count, t, 12), y = operand(count, t, 13);
        std::vector<std::int64_t> position(static_cast<std::size_t>(rows));
        std::iota(position.begin(), position.end(), 5);
        CHECK(same_bits_on_any_threads([&] {
            Stored out = garbage(cols, DType::f32);
            column_sum(x.data(), t, out.data(), DType::f32, rows, cols, false);
            return out.bytes;
        }));
        CHECK(same_bits_on_any_threads([&] {
            Stored out = garbage(count, t);
            kernels()->gelu_dx(x.data(), y.data(), out.data(), count, t);
            return out.bytes;
        }));
        CHECK(same_bits_on_any_threads([&] {
            Stored out = garbage(count, t);
            Rotary r{.b = 1, .s = rows, .n = 10, .d = 26, .position = position.data()};
            r.t = t;
            kernels()->rotary(r, x.data(), out.data());
            return out.bytes;
        }));
    }
}
