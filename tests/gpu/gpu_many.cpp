// More of it than one launch or one tile takes: parts, stretches, slices, tokens and rows; and rows and slices off any alignment.
#include "kernels/device.hpp"
#include "kernels/reference.hpp"

using namespace quadrille;
using namespace quadrille::test;

namespace {

// `size` elements of `s` from `first` on.
const unsigned char* at(const Stored& s, std::int64_t first) { return s.bytes.data() + first * bytes_of(s.t); }
unsigned char* at(Stored& s, std::int64_t first) { return s.bytes.data() + first * bytes_of(s.t); }

}  // namespace

TEST_CASE("count: 300 parts") {
    const std::vector<std::uint8_t> mask(700, 7);
    std::vector<MaskPart> parts;
    double want = 0;
    for (std::int64_t i = 0; i < 300; ++i) parts.push_back({mask.data() + i, i}), want += static_cast<double>(i);
    double total = 5;
    kernels()->count(parts, &total, true);
    CHECK(total == want + 5);
}

TEST_CASE("sum_squares: 300 stretches, from any element on, and runs of more than 64 blocks") {
    for (const DType t : storage_types) {
        const Operand g = operand(150000, t, 3);
        std::vector<Extent> stretches;
        double want = 0;
        for (std::int64_t i = 0; i < 300; ++i) {
            stretches.push_back({i * 151, i % 3 == 0 ? 0 : 7 * i});
            for (std::int64_t k = 0; k < stretches.back().count; ++k) want += std::pow(g.x[static_cast<std::size_t>(i * 151 + k)], 2);
        }
        Workspace workspace(kernels()->sum_squares_workspace(300 * 7 * 150, 300));
        double sum = 0;
        kernels()->sum_squares(g.data(), t, stretches, &sum, workspace.data());
        CHECK(sum == doctest::Approx(want).epsilon(1e-13));
        kernels()->sum_squares(g.data(), t, {}, &sum, workspace.data());
        CHECK(sum == 0.0);
        const Extent all{0, 150000};
        kernels()->sum_squares(g.data(), t, {&all, 1}, &sum, workspace.data());
        CHECK(sum == doctest::Approx(dot(g.x, g.x)).epsilon(1e-13));
    }
}

TEST_CASE("embedding_dw: several tiles of tokens, three digits of rows") {
    const std::int64_t tokens = 5000, rows = 70000, first = 1000;
    for (const auto& [t, h] : {std::pair<DType, std::int64_t>{DType::f32, 8}, {DType::bf16, 12}, {DType::bf16, 7}}) {
        std::mt19937 engine(4);
        std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens));
        for (auto& id : ids) {
            const auto draw = engine() % 4;
            id = draw == 0 ? 65537 : draw == 1 ? static_cast<std::int32_t>(engine() % 50) : static_cast<std::int32_t>(engine() % 80000);
        }
        const Operand dy = operand(tokens * h, t, 5);
        const Embedding e{.tokens = tokens, .h = h, .first_row = first, .rows = rows};
        Stored table = garbage(rows * h, DType::f32);
        Workspace workspace(kernels()->embedding_dw_workspace(e));
        kernels()->embedding_dw(e, ids.data(), dy.data(), t, table.data(), DType::f32, false, workspace.data());
        std::vector<float> want(static_cast<std::size_t>(rows * h), 0.0f);  // token by token: the same bits
        for (std::int64_t i = 0; i < tokens; ++i) {
            const std::int64_t row = ids[static_cast<std::size_t>(i)] - first;
            for (std::int64_t c = 0; row >= 0 && row < rows && c < h; ++c)
                want[static_cast<std::size_t>(row * h + c)] += static_cast<float>(dy.x[static_cast<std::size_t>(i * h + c)]);
        }
        CHECK(table.bytes == stored(Values(want.begin(), want.end()), DType::f32).bytes);
    }
}

TEST_CASE("loss: rows that begin anywhere, logits and gradients apart") {
    const std::int64_t tokens = 5, columns = 1003;
    for (const DType t : storage_types)
        for (const std::int64_t off : {0, 1, 5}) {
            const Operand x = operand(tokens * columns + off, t, 6, 3.0);
            Logits l{.tokens = tokens, .columns = columns, .real_columns = 1000, .t = t};
            std::vector<std::int32_t> target = {0, 999, 500, 7, 8};
            std::vector<float> max(5), sums(10), dsums = {0.5f, 0.25f, 1.0f, 0.0f, 2.0f, -1.0f, -1.0f, -1.0f, 0.0f, -3.0f};
            kernels()->logit_max(l, at(x.stored, off), max.data());
            kernels()->logit_sums(l, at(x.stored, off), max.data(), target.data(), sums.data());
            Stored d = garbage(tokens * columns + 2, t), place = x.stored;
            kernels()->logit_sums_dx(l, at(x.stored, off), max.data(), target.data(), dsums.data(), at(d, 2));
            kernels()->logit_sums_dx(l, at(place, off), max.data(), target.data(), dsums.data(), at(place, off));
            CHECK(std::equal(at(d, 2), at(d, 2) + tokens * columns * bytes_of(t), at(place, off)));
            const Values got = values(d);
            for (std::int64_t i = 0; i < tokens; ++i) {
                const auto k = static_cast<std::size_t>(i);
                const auto row = x.x.begin() + off + i * columns;
                const double top = *std::max_element(row, row + 1000);
                double sum = 0;
                for (std::int64_t c = 0; c < 1000; ++c) sum += std::exp(row[c] - top);
                CHECK(max[k] == static_cast<float>(top));
                CHECK(sums[k] == doctest::Approx(sum).epsilon(1e-6));
                CHECK(sums[5 + k] == doctest::Approx(row[target[k]] - top).epsilon(1e-6));
                double worst = 0;
                for (std::int64_t c = 0; c < columns; ++c) {
                    const double want = c >= 1000 ? 0.0 : dsums[k] * std::exp(row[c] - top) + (c == target[k] ? dsums[5 + k] : 0.0f);
                    const double is = got[static_cast<std::size_t>(2 + i * columns + c)];
                    worst = std::max(worst, std::abs(is - want) / (rounding(t) * std::abs(want) + 2e-6));
                }
                CHECK(worst <= 1.0);
            }
        }
}
