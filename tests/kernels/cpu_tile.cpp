// Tile arithmetic: the product of every shape of its register blocks, the transpose, exp2, rows of f32, bf16 and f16.
#include "cpu/tile.hpp"
#include "reference.hpp"
#include <cstdint>
#include <limits>
#include <type_traits>

using namespace quadrille;
using namespace quadrille::test;

namespace {

std::vector<float> floats(std::int64_t count, unsigned seed) {
    const Values x = normal(count, seed);
    return {x.begin(), x.end()};
}

// Against float64; what lies between the rows of c stays as it was.
void check_product(std::int64_t m, std::int64_t n, std::int64_t k, bool a_transposed, bool accumulate) {
    const std::int64_t lda = (a_transposed ? m : k) + 3, ldb = n + 16, ldc = n + 16;
    const std::vector<float> a = floats(lda * std::max(m, k), 1), b = floats(ldb * k, 2), before = floats(ldc * m, 3);
    std::vector<float> c = before;
    const std::int64_t a_row = a_transposed ? 1 : lda, a_step = a_transposed ? lda : 1;
    tile_product({m, n, k, a.data(), a_row, a_step, b.data(), ldb, c.data(), ldc, accumulate});
    Values got, want;
    for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < ldc; ++j) {
            double sum = accumulate || j >= n ? before[i * ldc + j] : 0.0;
            for (std::int64_t l = 0; l < k && j < n; ++l) sum += static_cast<double>(a[i * a_row + l * a_step]) * b[l * ldb + j];
            got.push_back(c[i * ldc + j]), want.push_back(sum);
        }
    INFO("m n k ", m, " ", n, " ", k, " transposed ", a_transposed);
    CHECK(error(got, want, 0.0, 3e-5) <= 1.0);
}

}  // namespace

TEST_CASE("products of every block") {
    for (std::int64_t m = 1; m <= 13; ++m)
        for (const std::int64_t n : {16, 32, 48, 64, 80, 144})
            for (const std::int64_t k : {1, 17, 64})
                for (const bool a_transposed : {false, true}) check_product(m, n, k, a_transposed, (m + k) % 2 == 0);
}

TEST_CASE("transpose") {
    const std::int64_t rows = 48, cols = 32;
    const std::vector<float> x = floats(rows * cols, 4);
    std::vector<float> y(static_cast<std::size_t>(rows * cols));
    tile_transpose(x.data(), cols, y.data(), rows, rows, cols);
    bool equal = true;
    for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < cols; ++j) equal = equal && y[j * rows + i] == x[i * cols + j];
    CHECK(equal);
}

TEST_CASE("exp2") {
    const auto exp2_of = [](float x) { return exp2(broadcast(x))[0]; };
    Values got, want;
    for (float x = -126.0f; x < 120.0f; x += 0.0137f) got.push_back(exp2_of(x)), want.push_back(std::exp2(static_cast<double>(x)));
    CHECK(error(got, want, 2e-7, 0.0) <= 1.0);
    CHECK(exp2_of(0.0f) == 1.0f);
    CHECK(exp2_of(-127.0f) == 0.0f);
    CHECK(exp2_of(-1e30f) == 0.0f);
    CHECK(exp2_of(-std::numeric_limits<float>::infinity()) == 0.0f);
    CHECK(std::isnan(exp2_of(std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("rows") {
    for (const DType t : storage_types)
        for (const std::int64_t d : {1, 15, 16, 33, 64}) {
            const std::int64_t rows = 5, stride = d + 2, width = whole_lanes(d);
            const Operand x = operand((rows - 1) * stride + d, t, 6);
            std::vector<float> tile(static_cast<std::size_t>(rows * width), NAN);
            load_rows(x.data(), t, stride, rows, d, tile.data(), width);
            Stored back = garbage(x.stored.size(), t);
            store_rows(tile.data(), width, 2.0f, back.data(), t, stride, rows, d, false);
            const Values y = values(back), untouched = values(garbage(1, t));
            bool equal = true;
            for (std::int64_t i = 0; i < x.stored.size(); ++i) equal = equal && y[i] == (i % stride < d ? 2 * x.x[i] : untouched[0]);
            for (std::int64_t i = 0; i < rows * width; ++i) equal = equal && (i % width < d || tile[i] == 0);
            CHECK(equal);
        }
    std::vector<float> tile = floats(3 * 32, 7), sum(3 * 20, 1.0f);
    store_rows(tile.data(), 32, 0.5f, sum.data(), DType::f32, 20, 3, 20, true);
    CHECK(sum[59] == 1.0f + 0.5f * tile[2 * 32 + 19]);
    CHECK(sum[3] == 1.0f + 0.5f * tile[3]);
}

TEST_CASE_TEMPLATE("vectors of 16-bit elements convert like single ones", T, bf16, f16) {
    constexpr DType type = std::is_same_v<T, bf16> ? DType::bf16 : DType::f16;
    const std::int64_t n = 65536;
    std::vector<T> every(n), back(n);
    for (std::int64_t i = 0; i < n; ++i) every[i].bits = static_cast<std::uint16_t>(i);
    std::vector<float> wide(n);
    load_rows(every.data(), type, n, 1, n, wide.data(), n);
    std::int64_t differ = 0;
    for (std::int64_t i = 0; i < n; ++i)
        differ += std::isnan(wide[i]) ? !std::isnan(static_cast<float>(every[i])) : wide[i] != static_cast<float>(every[i]);
    CHECK(differ == 0);
    for (const float factor : {1.0f, 1.00048828125f, 0.99951171875f, 1.0003f, 1024.0f, 0x1p-20f}) {  // to ties, past them, over and under
        for (std::int64_t i = 0; i < n; ++i) wide[i] = static_cast<float>(every[i]) * factor;
        store_rows(wide.data(), n, 1.0f, back.data(), type, n, 1, n, false);
        differ = 0;
        for (std::int64_t i = 0; i < n; ++i)
            differ += std::isnan(wide[i]) ? !std::isnan(static_cast<float>(back[i])) : back[i].bits != T(wide[i]).bits;
        CHECK(differ == 0);
    }
}
