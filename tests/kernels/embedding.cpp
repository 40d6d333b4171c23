// Look-ups in a cut table and their gradient against float64. Tolerance: rounding of the table's type, 1e-6 per f32 sum.
#include "kernels/device.hpp"
#include "kernels/reference.hpp"

using namespace quadrille;
using namespace quadrille::test;

namespace {

// Ids of a vocabulary of 257, with many repetitions.
std::vector<std::int32_t> draw_ids(std::int64_t tokens) {
    std::mt19937 engine(1);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens));
    for (auto& id : ids) id = static_cast<std::int32_t>(engine() % 257 * (engine() % 257) / 257);
    return ids;
}

void gradient(const Embedding& e, const std::int32_t* ids, const void* dy, DType dy_type, Stored& table, DType out, bool accumulate) {
    Workspace workspace(kernels()->embedding_dw_workspace(e));
    kernels()->embedding_dw(e, ids, dy, dy_type, table.data(), out, accumulate, workspace.data());
}

}  // namespace

TEST_CASE("the ranks' look-ups add up to the whole one") {
    for (const DType t : storage_types)
        for (const std::int64_t h : odd_sizes) {
            const auto ids = draw_ids(70);
            const Operand table = operand(257 * h, t, 2);
            const Embedding low{.tokens = 70, .h = h, .first_row = 0, .rows = 100}, high{.tokens = 70, .h = h, .first_row = 100, .rows = 157};
            Stored a = garbage(70 * h, t), b = a;
            kernels()->embedding(low, ids.data(), table.data(), a.data(), t);
            kernels()->embedding(high, ids.data(), static_cast<const unsigned char*>(table.data()) + 100 * h * bytes_of(t), b.data(), t);
            const Values va = values(a), vb = values(b);
            for (std::size_t i = 0; i < va.size(); ++i) {
                const std::size_t id = static_cast<std::size_t>(ids[i / static_cast<std::size_t>(h)]);
                const double want = table.x[id * static_cast<std::size_t>(h) + i % static_cast<std::size_t>(h)];
                CHECK(va[i] == (id < 100 ? want : 0.0));
                CHECK(vb[i] == (id < 100 ? 0.0 : want));
            }
        }
}

TEST_CASE("the gradient of a cut table") {
    for (const DType dy_type : storage_types)
        for (const DType out : storage_types)
            for (const bool accumulate : {false, true})
                for (const std::int64_t h : odd_sizes) {
                    const std::int64_t tokens = 300;
                    const auto ids = draw_ids(tokens);
                    const Operand dy = operand(tokens * h, dy_type, 3), before = operand(60 * h, out, 4);
                    const Embedding e{.tokens = tokens, .h = h, .first_row = 20, .rows = 60};
                    Stored table = before.stored;
                    gradient(e, ids.data(), dy.data(), dy_type, table, out, accumulate);
                    Values want = accumulate ? before.x : Values(before.x.size(), 0.0);
                    for (std::int64_t i = 0; i < tokens; ++i) {
                        const std::int64_t row = ids[static_cast<std::size_t>(i)] - 20;
                        for (std::int64_t c = 0; row >= 0 && row < 60 && c < h; ++c)
                            want[static_cast<std::size_t>(row * h + c)] += dy.x[static_cast<std::size_t>(i * h + c)];
                    }
                    CHECK(error(table, want, rounding(out), 2e-6) <= 1.0);
                }
}

TEST_CASE("no tokens, and the same bits on any number of threads") {
    const auto ids = draw_ids(400);
    const Operand dy = operand(400 * 60, DType::f32, 5);
    CHECK(same_bits_on_any_threads([&] {
        Stored table = garbage(257 * 60, DType::f32);
        gradient({.tokens = 400, .h = 60, .first_row = 0, .rows = 257}, ids.data(), dy.data(), DType::f32, table, DType::f32, false);
        return table.bytes;
    }));
    Stored table = garbage(60, DType::bf16);
    gradient({.tokens = 0, .h = 60, .first_row = 0, .rows = 1}, nullptr, nullptr, DType::f32, table, DType::bf16, false);
    CHECK(values(table) == Values(60, 0.0));
}
