// Attention's forward and backward against a naive float64 reference: sizes around the tiles, grouped heads, masks, dropout,
// both precisions.
#include "attention_case.hpp"

using namespace quadrille;
using namespace quadrille::test;

namespace {

// Tolerances: fp32 rounding of sums of some hundred terms; bf16 rounding of the outputs and of the o that delta is made from, and on tensor cores of
// the probabilities and of their gradients before the second product.
void check(const Case& c) {
    const double tolerance = c.type == DType::f32 ? 6e-6 : 3 * rounding(c.type);
    const Result expected = c.reference();
    for (const DType grad_type : {c.type, DType::f32}) {
        const Result got = c.computed(2, grad_type);
        INFO("b s t n g d ", c.shape.b, " ", c.shape.s, " ", c.shape.t, " ", c.shape.n, " ", c.shape.g, " ", c.shape.d);
        INFO("type ", std::string(name_of(c.type)), " rate ", c.rate, " documents ", !c.document_start.empty());
        CHECK(difference(got.o, expected.o) < tolerance);
        CHECK(difference(got.lse, expected.lse) < 2e-6);
        CHECK(difference(got.dq, expected.dq) < tolerance);
        CHECK(difference(got.dk, expected.dk) < tolerance);
        CHECK(difference(got.dv, expected.dv) < tolerance);
    }
}

std::vector<std::int32_t> documents(const Case& c, const std::vector<std::int32_t>& starts) {
    std::vector<std::int32_t> start_bs;
    for (std::int64_t b = 0; b < c.shape.b; ++b)
        for (const std::int64_t position : c.q_position) {
            std::int32_t last = 0;  // later sequences leave out the first starts
            for (std::size_t i = static_cast<std::size_t>(b); i < starts.size(); ++i)
                if (starts[i] <= position) last = starts[i];
            start_bs.push_back(last);
        }
    return start_bs;
}

}  // namespace

TEST_CASE("sizes around the tiles, one to many heads to a kv head") {
    const AttentionShape shapes[] = {
        {1, 1, 1, 1, 1, 1},    {2, 1, 1, 2, 1, 3},     {1, 5, 5, 2, 2, 7},      {2, 64, 64, 3, 3, 64},  {1, 65, 65, 2, 1, 16},
        {2, 130, 130, 6, 2, 20}, {1, 200, 200, 3, 1, 33}, {1, 127, 127, 4, 4, 80}, {1, 63, 63, 1, 1, 128}, {1, 257, 257, 2, 2, 65},
    };
    for (const DType type : storage_types)
        for (const AttentionShape& shape : shapes) check(Case(shape, type));
}

TEST_CASE("queries and keys of different lengths and places; queries that see nothing") {
    for (const DType type : storage_types) {
        Case c({2, 70, 150, 4, 2, 24}, type);
        for (auto& p : c.q_position) p += 60;
        check(c);
        for (auto& p : c.k_position) p += 100;  // the first queries see no key
        check(c);
        Case one({1, 1, 300, 2, 1, 16}, type);
        one.q_position = {211};
        check(one);
        Case blind({1, 80, 90, 2, 1, 16}, type);
        for (auto& p : blind.k_position) p += 80;
        const Result r = blind.computed(2, type);
        CHECK(std::all_of(r.o.begin(), r.o.end(), [](double x) { return x == 0; }));
        CHECK(std::all_of(r.lse.begin(), r.lse.end(), [](double x) { return x == -inf; }));
        CHECK(std::all_of(r.dq.begin(), r.dq.end(), [](double x) { return x == 0; }));
        CHECK(std::all_of(r.dk.begin(), r.dk.end(), [](double x) { return x == 0; }));
    }
}

TEST_CASE("positions far beyond 32 bits") {
    Case c({1, 70, 70, 2, 1, 16}, DType::f32);
    c.seq = std::int64_t{1} << 40;
    for (auto* positions : {&c.q_position, &c.k_position})
        for (auto& p : *positions) p += (std::int64_t{1} << 39) + 7;
    c.rate = 0.25f;
    check(c);
}

TEST_CASE("documents") {
    for (const DType type : storage_types) {
        Case c({3, 200, 200, 4, 2, 16}, type);
        c.document_start = documents(c, {3, 64, 65, 100, 190});
        check(c);
        c.rate = 0.1f;
        check(c);
    }
}

TEST_CASE("dropout draws by global sample, head and position, and not in lse") {
    for (const DType type : storage_types) {
        Case c({2, 100, 100, 4, 2, 16}, type);
        const Result whole = c.computed(1, type);
        c.rate = 0.3f;
        check(c);
        CHECK(c.computed(1, type).lse == whole.lse);
    }
}

TEST_CASE("any kv head for any query head; a kv head without queries gets gradient 0") {
    Case c({2, 90, 90, 4, 3, 16}, DType::f32);
    c.kv_head = {2, 0, 2, 0};
    check(c);
    const Result r = c.computed(2, DType::f32);
    for (std::int64_t j = 0; j < 90; ++j) CHECK(r.dk[static_cast<std::size_t>((j * 3 + 1) * 16)] == 0);
}

TEST_CASE("scores of hundreds neither overflow nor lose the sum") {
    Case c({1, 100, 100, 2, 2, 16}, DType::f32);
    for (double& x : c.q) x = static_cast<float>(x * 40);
    const Result expected = c.reference(), got = c.computed(1, DType::f32);
    CHECK(difference(got.o, expected.o) < 1e-4);
    CHECK(difference(got.lse, expected.lse) < 1e-6);
}

TEST_CASE("a NaN reaches the output") {
    Case c({1, 80, 80, 1, 1, 16}, DType::f32);
    c.k[0] = std::nan("");
    const Result r = c.computed(1, DType::f32);
    CHECK(std::isnan(r.o[0]));
    CHECK(std::isnan(r.o.back()));
    CHECK(std::isnan(r.lse.back()));
}
