// Attention where a device's tiles change: wide heads, lists so long that most tiles are not seen, tensors at odd addresses. Against the naive
// float64 reference, or against the same problem at other places.
#include "attention_case.hpp"

using namespace quadrille;
using namespace quadrille::test;

namespace {

void check(const Case& c) {
    const double tolerance = c.type == DType::f32 ? 6e-6 : 3 * rounding(c.type);  // as in attention.cpp
    const Result expected = c.reference(), got = c.computed(2, c.type);
    INFO("b s t n g d ", c.shape.b, " ", c.shape.s, " ", c.shape.t, " ", c.shape.n, " ", c.shape.g, " ", c.shape.d, " ",
         std::string(name_of(c.type)));
    CHECK(difference(got.o, expected.o) < tolerance);
    CHECK(difference(got.lse, expected.lse) < 2e-6);
    CHECK(difference(got.dq, expected.dq) < tolerance);
    CHECK(difference(got.dk, expected.dk) < tolerance);
    CHECK(difference(got.dv, expected.dv) < tolerance);
}

// The same values `elements` elements behind an address that is a multiple of 64 bytes.
struct Moved {
    std::vector<unsigned char> memory;
    unsigned char* begin;
    Moved(const Stored& x, std::int64_t elements) : memory(x.bytes) {
        memory.resize(memory.size() + 128);
        const auto past = reinterpret_cast<std::uintptr_t>(memory.data()) % 64;
        begin = memory.data() + (64 - past) % 64 + elements * bytes_of(x.t);
        std::copy(x.bytes.begin(), x.bytes.end(), begin);
    }
    Values back(const Stored& like) const {
        Stored x = like;
        std::copy_n(begin, x.bytes.size(), x.bytes.begin());
        return values(x);
    }
};

// All tensors of the call `elements` elements behind such addresses.
Result moved(const Case& c, std::int64_t elements) {
    const Stored like_q = stored(c.q, c.type), like_k = stored(c.k, c.type);
    const Moved q(like_q, elements), k(like_k, elements), v(stored(c.v, c.type), elements), d_o(stored(c.d_o, c.type), elements);
    const Moved o(like_q, elements), dq(like_q, elements), dk(like_k, elements), dv(like_k, elements);
    std::vector<float> lse(c.q.size() / static_cast<std::size_t>(c.shape.d));
    for (const bool backward : {false, true}) {
        Workspace workspace(kernels()->attention_workspace(c.shape, c.type, backward));
        Attention a = c.attention(like_q, like_k, like_k, workspace);
        a.q = q.begin, a.k = k.begin, a.v = v.begin;
        if (backward)
            kernels()->attention_dx(a, o.begin, lse.data(), d_o.begin, dq.begin, dk.begin, dv.begin, c.type, false);
        else
            kernels()->attention(a, o.begin, c.type, lse.data(), false);
    }
    return {o.back(like_q), Values(lse.begin(), lse.end()), dq.back(like_q), dk.back(like_k), dv.back(like_k)};
}

}  // namespace

TEST_CASE("heads of up to 256 channels") {
    for (const DType type : storage_types)
        for (const std::int64_t d : {32, 72, 96, 120, 136, 160, 192, 255, 256}) {
            Case c({1, 70, 70, 2, 1, d}, type, static_cast<std::uint64_t>(d));
            check(c);
            c.rate = 0.2f;
            check(c);
        }
}

TEST_CASE("one query among thousands of keys, two keys among thousands of queries") {
    for (const DType type : storage_types) {
        Case late({1, 1, 2700, 2, 2, 16}, type);
        late.q_position = {2650};
        check(late);
        late.document_start = {2500};  // all but the last tiles are not seen
        check(late);
        Case early({1, 2700, 2, 2, 1, 16}, type);
        early.k_position = {2600, 2650};  // all but the last queries see nothing
        check(early);
    }
}

TEST_CASE("where tensors lie changes no bit") {
    for (const DType type : storage_types)
        for (const std::int64_t d : {64, 20}) {
            const Case c({2, 100, 100, 2, 1, d}, type);
            const Result aligned = moved(c, 0), odd = moved(c, 1);
            INFO("d ", d, " ", std::string(name_of(type)));
            CHECK(odd.o == aligned.o);
            CHECK(odd.lse == aligned.lse);
            CHECK(odd.dq == aligned.dq);
            CHECK(odd.dk == aligned.dk);
            CHECK(odd.dv == aligned.dv);
        }
}

TEST_CASE("what is known of the lists changes nothing but the means") {
    for (const DType type : storage_types) {
        Case c({2, 130, 130, 4, 2, 64}, type);
        for (auto* positions : {&c.q_position, &c.k_position})
            for (auto& p : *positions) p += 1000;
        c.in_order = true;
        check(c);
    }
}
