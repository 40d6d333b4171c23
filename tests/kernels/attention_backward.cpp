// Attention's gradients against central differences of the float64 definition, and what must not change a bit.
#include "attention_case.hpp"

using namespace quadrille;
using namespace quadrille::test;

namespace {

double loss(const Case& c) {
    const Result r = c.reference();
    return std::inner_product(r.o.begin(), r.o.end(), c.d_o.begin(), 0.0);
}

Values central_differences(Case c, Values Case::* input) {
    return central_difference([&](const Values& x) { return c.*input = x, loss(c); }, c.*input);
}

bool equal(const Result& a, const Result& b) {
    return a.o == b.o && a.lse == b.lse && a.dq == b.dq && a.dk == b.dk && a.dv == b.dv;
}

}  // namespace

TEST_CASE("gradients are the central differences of the definition") {
    for (const float rate : {0.0f, 0.25f}) {
        Case c({2, 9, 9, 4, 2, 5}, DType::f32);
        c.rate = rate;
        c.document_start = {0, 0, 0, 0, 4, 4, 4, 7, 7, 0, 0, 0, 0, 0, 0, 0, 0, 8};
        const Result got = c.computed(1, DType::f32);
        CHECK(difference(got.dq, central_differences(c, &Case::q)) < 2e-6);
        CHECK(difference(got.dk, central_differences(c, &Case::k)) < 2e-6);
        CHECK(difference(got.dv, central_differences(c, &Case::v)) < 2e-6);
    }
}

// From one kv head (more threads than heads: the split way) to many (the joint way): one result.
TEST_CASE("the number of threads changes no bit, nor does a second run") {
    const AttentionShape shapes[] = {{1, 150, 150, 1, 1, 20}, {1, 150, 150, 4, 2, 16}, {3, 70, 90, 2, 1, 16}, {2, 200, 200, 6, 3, 33}};
    for (const DType type : storage_types)
        for (const AttentionShape& shape : shapes) {
            Case c(shape, type);
            c.rate = 0.1f;
            const Result one = c.computed(1, type);
            for (const int threads : {1, 2, 3, 5, 8}) {
                INFO("threads ", threads, " b ", shape.b, " g ", shape.g);
                CHECK(equal(one, c.computed(threads, type)));
            }
        }
}

TEST_CASE("accumulate adds to what the gradients hold") {
    const Case c({2, 80, 80, 4, 2, 16}, DType::bf16);
    omp_set_num_threads(2);
    const Result once = c.computed(2, DType::f32);
    const Stored q = stored(c.q, c.type), k = stored(c.k, c.type), v = stored(c.v, c.type), d_o = stored(c.d_o, c.type);
    const Stored o = stored(once.o, c.type);
    const std::vector<float> lse(once.lse.begin(), once.lse.end());
    std::vector<float> dq(c.q.size(), 3.0f), dk(c.k.size(), -2.0f), dv(c.k.size(), 0.5f);
    Workspace workspace(kernels()->attention_workspace(c.shape, c.type, true));
    kernels()->attention_dx(c.attention(q, k, v, workspace), o.data(), lse.data(), d_o.data(), dq.data(), dk.data(), dv.data(), DType::f32, true);
    for (std::size_t i = 0; i < dq.size(); ++i) CHECK(dq[i] == doctest::Approx(once.dq[i] + 3.0).epsilon(1e-6));
    for (std::size_t i = 0; i < dk.size(); ++i) CHECK(dk[i] == doctest::Approx(once.dk[i] - 2.0).epsilon(1e-6));
    for (std::size_t i = 0; i < dv.size(); ++i) CHECK(dv[i] == doctest::Approx(once.dv[i] + 0.5).epsilon(1e-6));
}
