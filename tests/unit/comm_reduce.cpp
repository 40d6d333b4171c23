// The arithmetic of reductions on arrival, element by element against the plain definition, and slices that are packed,
// unpacked and combined in portions.
#include <doctest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "base/random.hpp"
#include "comm/reduce.hpp"
#include "comm/slices.hpp"

namespace quadrille {
namespace {

template <class T>
std::vector<T> random_values(std::uint64_t key, std::int64_t count) {
    std::vector<T> x;
    for (std::int64_t i = 0; i < count; ++i)
        x.push_back(T(static_cast<float>(100 * random_normal(key, static_cast<std::uint64_t>(i)))));
    return x;
}

// out separate, and out on top of a.
template <class T, class F>
void check_combine(ReduceOp op, DType dtype, F expected) {
    for (const std::int64_t count : {0, 1, 7, 64, 1001}) {
        std::vector<T> a = random_values<T>(1, count);
        const std::vector<T> b = random_values<T>(2, count);
        std::vector<T> out(static_cast<std::size_t>(count)), want;
        for (std::size_t i = 0; i < a.size(); ++i) want.push_back(expected(a[i], b[i]));
        combine(op, dtype, a.data(), b.data(), out.data(), count);
        combine(op, dtype, a.data(), b.data(), a.data(), count);
        const auto same = [](T x, T y) { return static_cast<float>(x) == static_cast<float>(y); };
        CHECK(std::equal(out.begin(), out.end(), want.begin(), same));
        CHECK(std::equal(a.begin(), a.end(), want.begin(), same));
    }
}

// 16-bit types: added in fp32, rounded once.
template <class T>
void check_narrow(DType dtype) {
    check_combine<T>(ReduceOp::sum, dtype, [](T a, T b) { return T(static_cast<float>(a) + static_cast<float>(b)); });
    check_combine<T>(ReduceOp::max, dtype, [](T a, T b) { return static_cast<float>(a) > static_cast<float>(b) ? a : b; });
    const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
        const T a[] = {T(nan), T(1), T(inf)}, b[] = {T(1), T(nan), T(1)};
        T out[3];
        combine(op, dtype, a, b, out, 3);
        CHECK((std::isnan(static_cast<float>(out[0])) && std::isnan(static_cast<float>(out[1]))));
        CHECK(static_cast<float>(out[2]) == inf);
    }
}

}  // namespace

TEST_CASE("sum and max of every type") {
    check_combine<float>(ReduceOp::sum, DType::f32, [](float a, float b) { return a + b; });
    check_combine<double>(ReduceOp::sum, DType::f64, [](double a, double b) { return a + b; });
    check_combine<std::int32_t>(ReduceOp::sum, DType::i32, [](std::int32_t a, std::int32_t b) { return a + b; });
    check_narrow<bf16>(DType::bf16);
    check_narrow<f16>(DType::f16);
    check_combine<float>(ReduceOp::max, DType::f32, [](float a, float b) { return std::max(a, b); });
    check_combine<double>(ReduceOp::max, DType::f64, [](double a, double b) { return std::max(a, b); });
    check_combine<std::int32_t>(ReduceOp::max, DType::i32, [](std::int32_t a, std::int32_t b) { return std::max(a, b); });
}

TEST_CASE("NaN and infinity stay what they are") {
    const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
        const float a[] = {nan, 1, inf}, b[] = {1, nan, 1};
        float out[3];
        combine(op, DType::f32, a, b, out, 3);
        CHECK((std::isnan(out[0]) && std::isnan(out[1]) && out[2] == inf));
    }
    const f16 large[] = {f16(60000)};
    f16 sum[1];
    combine(ReduceOp::sum, DType::f16, large, large, sum, 1);
    CHECK(static_cast<float>(sum[0]) == std::numeric_limits<float>::infinity());
    CHECK_THROWS(combine(ReduceOp::sum, DType::u8, nullptr, nullptr, nullptr, 0));
}

TEST_CASE("slices in portions") {
    std::vector<float> whole(100);
    std::iota(whole.begin(), whole.end(), 0.0F);
    SliceTable table;
    table.clear(sizeof(float));
    table.begin_slice();  // 10..19, 20..24 (one run), 50..59
    table.add(whole.data() + 10, 10);
    table.add(whole.data() + 20, 5);
    table.add(whole.data() + 50, 10);
    table.begin_slice();  // nothing
    table.begin_slice();
    table.add(whole.data() + 60, 0);
    table.add(whole.data() + 70, 3);
    CHECK(table.size() == 3);
    CHECK(table.length(0) == 25);
    CHECK(table.length(1) == 0);
    CHECK(table.length(2) == 3);
    CHECK(table.longest() == 25);
    CHECK(table.direct({0, 3, 12}) == reinterpret_cast<std::byte*>(whole.data() + 13));
    CHECK(table.direct({0, 14, 2}) == nullptr);
    CHECK(table.direct({2, 1, 2}) == reinterpret_cast<std::byte*>(whole.data() + 71));

    float packed[4];
    table.pack({0, 13, 4}, reinterpret_cast<std::byte*>(packed));
    CHECK((packed[0] == 23 && packed[1] == 24 && packed[2] == 50 && packed[3] == 51));
    combine_into(ReduceOp::sum, DType::f32, table, {0, 13, 4}, reinterpret_cast<std::byte*>(packed));
    CHECK((packed[0] == 46 && packed[3] == 102));
    combine_out(ReduceOp::sum, DType::f32, table, {0, 13, 4}, reinterpret_cast<std::byte*>(packed), table, {0, 13, 4});
    CHECK((whole[23] == 69 && whole[24] == 72 && whole[50] == 150 && whole[51] == 153));
    table.unpack({0, 13, 4}, reinterpret_cast<std::byte*>(packed));
    CHECK((whole[23] == 46 && whole[51] == 102));

    SliceTable other;
    other.clear(sizeof(float));
    other.begin_slice();
    other.add(whole.data(), 2);
    other.add(whole.data() + 5, 1);
    copy(table, {2, 0, 3}, other, {0, 0, 3}, sizeof(float));
    CHECK((whole[0] == 70 && whole[1] == 71 && whole[2] == 2 && whole[5] == 72));
}

TEST_CASE("equal cuts cover everything once, with 64-bit counts") {
    for (const std::int64_t count : {std::int64_t{0}, std::int64_t{1}, std::int64_t{7}, std::int64_t{1} << 60})
        for (const std::int64_t n : {1, 3, 16384}) {
            std::int64_t at = 0;
            for (std::int64_t i = 0; i < n; ++i) {
                const Extent e = equal_cut(count, n, i);
                CHECK(e.offset == at);
                CHECK((e.count == count / n || e.count == count / n + 1));
                at += e.count;
            }
            CHECK(at == count);
        }
}

}  // namespace quadrille
