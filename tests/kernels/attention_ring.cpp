// Attention as sp ranks compute it: each holds a piece of the sequence, keys and values come by in turns, partial results are
// merged. The ranks are simulated; what they give must be what one rank gives for the whole sequence.
#include "attention_case.hpp"

using namespace quadrille;
using namespace quadrille::test;

namespace {

// Rows [b, positions, width] of x[b, seq, width].
template <class T>
std::vector<T> rows(const std::vector<T>& x, const Positions& positions, std::int64_t b, std::int64_t seq, std::int64_t width) {
    std::vector<T> y;
    for (std::int64_t i = 0; i < b; ++i)
        for (const std::int64_t p : positions)
            y.insert(y.end(), x.begin() + (i * seq + p) * width, x.begin() + (i * seq + p + 1) * width);
    return y;
}

// The part of `whole` with these queries and keys.
Case part(const Case& whole, const Positions& queries, const Positions& keys) {
    const auto [b, s, t, n, g, d] = whole.shape;
    Case c = whole;
    c.shape.s = static_cast<std::int64_t>(queries.size()), c.shape.t = static_cast<std::int64_t>(keys.size());
    c.q_position = queries, c.k_position = keys;
    c.q = rows(whole.q, queries, b, s, n * d), c.d_o = rows(whole.d_o, queries, b, s, n * d);
    c.k = rows(whole.k, keys, b, t, g * d), c.v = rows(whole.v, keys, b, t, g * d);
    if (!whole.document_start.empty()) c.document_start = rows(whole.document_start, queries, b, s, 1);
    return c;
}

struct Partial {
    std::vector<float> o, lse;
};

void forward_turn(const Case& c, Partial& partial, bool merge) {
    const Stored q = stored(c.q, c.type), k = stored(c.k, c.type), v = stored(c.v, c.type);
    Workspace workspace(kernels()->attention_workspace(c.shape, c.type, false));
    kernels()->attention(c.attention(q, k, v, workspace), partial.o.data(), DType::f32, partial.lse.data(), merge);
}

void backward_turn(const Case& c, const Partial& final, std::vector<float>& dq, std::vector<float>& dk, std::vector<float>& dv) {
    const Stored q = stored(c.q, c.type), k = stored(c.k, c.type), v = stored(c.v, c.type), d_o = stored(c.d_o, c.type);
    const Stored o = stored(Values(final.o.begin(), final.o.end()), c.type);
    Workspace workspace(kernels()->attention_workspace(c.shape, c.type, true));
    kernels()->attention_dx(c.attention(q, k, v, workspace), o.data(), final.lse.data(), d_o.data(), dq.data(), dk.data(), dv.data(), DType::f32,
                 true);
}

void check_ring(const Case& whole, const Result& expected, const std::vector<Positions>& pieces, const std::vector<std::size_t>& order) {
    const auto [b, s, t, n, g, d] = whole.shape;
    const double tolerance = whole.type == DType::f32 ? 6e-6 : 3 * rounding(whole.type);
    const double o_tolerance = 3e-6 + probability_rounding(whole.type);  // the running o is f32, whatever the type
    std::vector<std::vector<float>> dk, dv;
    for (const Positions& keys : pieces) {
        dk.emplace_back(static_cast<std::size_t>(b * static_cast<std::int64_t>(keys.size()) * g * d));
        dv.push_back(dk.back());
    }
    for (std::size_t rank = 0; rank < pieces.size(); ++rank) {
        const Positions& queries = pieces[rank];
        const std::int64_t count = static_cast<std::int64_t>(queries.size());
        Partial partial{std::vector<float>(static_cast<std::size_t>(b * count * n * d), NAN),
                        std::vector<float>(static_cast<std::size_t>(b * count * n), NAN)};
        for (std::size_t turn = 0; turn < pieces.size(); ++turn)
            forward_turn(part(whole, queries, pieces[(rank + order[turn]) % pieces.size()]), partial, turn > 0);
        CHECK(difference(Values(partial.o.begin(), partial.o.end()), rows(expected.o, queries, b, s, n * d)) < o_tolerance);
        CHECK(difference(Values(partial.lse.begin(), partial.lse.end()), rows(expected.lse, queries, b, s, n)) < 2e-6);
        std::vector<float> dq(partial.o.size());
        for (const std::size_t turn : order) {
            const std::size_t piece = (rank + turn) % pieces.size();
            backward_turn(part(whole, queries, pieces[piece]), partial, dq, dk[piece], dv[piece]);
        }
        CHECK(difference(Values(dq.begin(), dq.end()), rows(expected.dq, queries, b, s, n * d)) < tolerance);
    }
    for (std::size_t piece = 0; piece < pieces.size(); ++piece) {
        CHECK(difference(Values(dk[piece].begin(), dk[piece].end()), rows(expected.dk, pieces[piece], b, t, g * d)) < tolerance);
        CHECK(difference(Values(dv[piece].begin(), dv[piece].end()), rows(expected.dv, pieces[piece], b, t, g * d)) < tolerance);
    }
}

}  // namespace

TEST_CASE("turns in any order give the whole") {
    omp_set_num_threads(2);
    for (const DType type : storage_types)
        for (const bool mixed : {false, true}) {
            Case whole({2, 96, 96, 4, 2, 16}, type);
            if (mixed) {
                whole.rate = 0.2f;
                for (std::int64_t i = 0; i < 192; ++i) whole.document_start.push_back(i % 96 < 50 ? 0 : i < 96 ? 50 : 37);
            }
            const Result expected = whole.reference();
            for (const auto& pieces : {zigzag(96, 4), contiguous(96, 4), zigzag(96, 2), contiguous(96, 3)}) {
                std::vector<std::size_t> order(pieces.size());
                std::iota(order.begin(), order.end(), std::size_t{0});
                check_ring(whole, expected, pieces, order);
                std::reverse(order.begin(), order.end());  // contiguous: begins with keys that some ranks do not see at all
                check_ring(whole, expected, pieces, order);
                std::swap(order.front(), order[1]);
                check_ring(whole, expected, pieces, order);
            }
        }
}

TEST_CASE("merging whole tiles") {
    omp_set_num_threads(2);
    const Case whole({1, 300, 300, 2, 1, 33}, DType::f32);
    const Result expected = whole.reference();
    check_ring(whole, expected, zigzag(300, 2), {0, 1});
    check_ring(whole, expected, contiguous(300, 2), {1, 0});
}
