// One attention problem for the tests: random tensors, masks and ids, a naive float64 reference that stores all scores, and a
// call of the kernels with a guarded workspace. Used by the tests attention*.
#pragma once
#include "base/random.hpp"
#include "device.hpp"
#include "reference.hpp"
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace quadrille::test {

constexpr double inf = std::numeric_limits<double>::infinity();

// Normal deviates, rounded to the type they will be stored in.
inline Values random_tensor(std::int64_t size, std::uint64_t seed, DType type, double scale = 1.0) {
    return operand(size, type, static_cast<unsigned>(seed), scale).x;
}

struct Result {
    Values o, lse, dq, dk, dv;
};

struct Case {
    AttentionShape shape;
    DType type = DType::f32;
    Values q, k, v, d_o;
    std::vector<std::int64_t> q_position, k_position, kv_head, sample, head;
    std::vector<std::int32_t> document_start;  // [b,s] or empty
    float rate = 0;
    std::int64_t heads = 0, seq = 0;
    bool in_order = false;
    static constexpr std::uint64_t key = 99;

    Case(AttentionShape s, DType t, std::uint64_t seed = 1) : shape(s), type(t), heads(s.n + 3), seq(std::max(s.s, s.t)) {
        q = random_tensor(s.b * s.s * s.n * s.d, 4 * seed, type, 1.5), k = random_tensor(s.b * s.t * s.g * s.d, 4 * seed + 1, type, 1.5);
        v = random_tensor(s.b * s.t * s.g * s.d, 4 * seed + 2, type), d_o = random_tensor(s.b * s.s * s.n * s.d, 4 * seed + 3, type);
        q_position.resize(s.s), k_position.resize(s.t), kv_head.resize(s.n), sample.resize(s.b), head.resize(s.n);
        std::iota(q_position.begin(), q_position.end(), 0), std::iota(k_position.begin(), k_position.end(), 0);
        std::iota(sample.begin(), sample.end(), 5), std::iota(head.begin(), head.end(), 2);
        for (std::int64_t i = 0; i < s.n; ++i) kv_head[i] = i * s.g / s.n;
    }

    Attention attention(const Stored& q_bytes, const Stored& k_bytes, const Stored& v_bytes, Workspace& workspace) const {
        return {shape, type, q_bytes.data(), k_bytes.data(), v_bytes.data(), q_position.data(), k_position.data(),
                document_start.empty() ? nullptr : document_start.data(), kv_head.data(),
                in_order, {rate, key, sample.data(), head.data(), heads, seq}, workspace.data()};
    }

    bool sees(std::int64_t b, std::int64_t i, std::int64_t j) const {
        return k_position[j] <= q_position[i] && (document_start.empty() || k_position[j] >= document_start[b * shape.s + i]);
    }
    double factor(std::int64_t b, std::int64_t n, std::int64_t i, std::int64_t j) const {
        if (rate == 0) return 1.0;
        std::uint64_t index = 0;
        for (const auto& [extent, digit] : {std::pair{std::int64_t{0}, sample[b]}, {heads, head[n]}, {seq, q_position[i]}, {seq, k_position[j]}})
            index = index * static_cast<std::uint64_t>(extent) + static_cast<std::uint64_t>(digit);
        return keeps(key, index, keep_threshold(rate)) ? 1.0 / (1.0 - static_cast<double>(rate)) : 0.0;
    }
    std::size_t q_at(std::int64_t b, std::int64_t i, std::int64_t n) const {
        return static_cast<std::size_t>(((b * shape.s + i) * shape.n + n) * shape.d);
    }
    std::size_t k_at(std::int64_t b, std::int64_t j, std::int64_t n) const {
        return static_cast<std::size_t>(((b * shape.t + j) * shape.g + kv_head[n]) * shape.d);
    }

    // The definition, in float64: o, lse and the analytic gradients of Σ o·d_o.
    Result reference() const {
        Result r{Values(q.size()), Values(q.size() / shape.d, -inf), Values(q.size()), Values(k.size()), Values(k.size())};
        for (std::int64_t b = 0; b < shape.b; ++b)
            for (std::int64_t n = 0; n < shape.n; ++n)
                for (std::int64_t i = 0; i < shape.s; ++i) reference_row(r, b, n, i);
        return r;
    }
    void reference_row(Result& r, std::int64_t b, std::int64_t n, std::int64_t i) const {
        const std::int64_t d = shape.d;
        const std::size_t at = q_at(b, i, n);
        const double scale = 1.0 / std::sqrt(static_cast<double>(d));
        Values p(shape.t, -inf), dp(shape.t);
        for (std::int64_t j = 0; j < shape.t; ++j)
            if (sees(b, i, j)) p[j] = scale * std::inner_product(&q[at], &q[at] + d, &k[k_at(b, j, n)], 0.0);
        const double largest = *std::max_element(p.begin(), p.end());
        if (largest == -inf) return;
        double sum = 0, delta = 0;
        for (double& x : p) sum += x = std::exp(x - largest);
        r.lse[at / d] = largest + std::log(sum);
        for (std::int64_t j = 0; j < shape.t; ++j) {
            p[j] /= sum;
            if (p[j] == 0) continue;
            const double m = factor(b, n, i, j);
            const std::size_t k_j = k_at(b, j, n);
            dp[j] = m * std::inner_product(&d_o[at], &d_o[at] + d, &v[k_j], 0.0);
            delta += p[j] * dp[j];
            for (std::int64_t x = 0; x < d; ++x) r.o[at + x] += p[j] * m * v[k_j + x], r.dv[k_j + x] += p[j] * m * d_o[at + x];
        }
        for (std::int64_t j = 0; j < shape.t; ++j) {
            const double ds = scale * p[j] * (dp[j] - delta);
            const std::size_t k_j = k_at(b, j, n);
            for (std::int64_t x = 0; x < d; ++x) r.dq[at + x] += ds * k[k_j + x], r.dk[k_j + x] += ds * q[at + x];
        }
    }

    // What the kernels give with `threads` threads. The backward reads the forward's o, rounded to the type, and its lse.
    Result computed(int threads, DType grad_type) const {
        omp_set_num_threads(threads);
        const Stored q_bytes = stored(q, type), k_bytes = stored(k, type), v_bytes = stored(v, type), do_bytes = stored(d_o, type);
        std::vector<float> lse(q.size() / shape.d);
        Stored o = garbage(q_bytes.size(), type);
        {
            Workspace workspace(kernels()->attention_workspace(shape, type, false));
            kernels()->attention(attention(q_bytes, k_bytes, v_bytes, workspace), o.data(), type, lse.data(), false);
        }
        Stored dq = garbage(q_bytes.size(), grad_type), dk = garbage(k_bytes.size(), grad_type), dv = dk;
        {
            Workspace workspace(kernels()->attention_workspace(shape, type, true));
            kernels()->attention_dx(attention(q_bytes, k_bytes, v_bytes, workspace), o.data(), lse.data(), do_bytes.data(), dq.data(), dk.data(),
                         dv.data(), grad_type, false);
        }
        return {values(o), Values(lse.begin(), lse.end()), values(dq), values(dk), values(dv)};
    }
};

// Positions that one rank of a ring holds of the sequence.
using Positions = std::vector<std::int64_t>;

inline Positions range(std::int64_t first, std::int64_t last) {
    Positions p(static_cast<std::size_t>(last - first));
    std::iota(p.begin(), p.end(), first);
    return p;
}

// The sequence in 2·ranks pieces, of which rank r holds the r-th from the front and the r-th from the back.
inline std::vector<Positions> zigzag(std::int64_t seq, std::int64_t ranks) {
    std::vector<Positions> pieces;
    for (std::int64_t r = 0; r < ranks; ++r) {
        const std::int64_t back = 2 * ranks - 1 - r, p = 2 * ranks;
        Positions piece = range(seq * r / p, seq * (r + 1) / p);
        const Positions second = range(seq * back / p, seq * (back + 1) / p);
        piece.insert(piece.end(), second.begin(), second.end());
        pieces.push_back(piece);
    }
    return pieces;
}

inline std::vector<Positions> contiguous(std::int64_t seq, std::int64_t ranks) {
    std::vector<Positions> pieces;
    for (std::int64_t r = 0; r < ranks; ++r) pieces.push_back(range(seq * r / ranks, seq * (r + 1) / ranks));
    return pieces;
}

// The largest difference, over the largest magnitude of the reference (or 0.1); infinities must agree.
inline double difference(const Values& x, const Values& reference) {
    REQUIRE(x.size() == reference.size());
    double most = 0, magnitude = 0.1;
    for (std::size_t i = 0; i < x.size(); ++i) {
        if (x[i] == reference[i]) continue;
        if (!std::isfinite(x[i]) || !std::isfinite(reference[i])) return inf;
        most = std::max(most, std::abs(x[i] - reference[i]));
    }
    for (const double r : reference)
        if (std::isfinite(r)) magnitude = std::max(magnitude, std::abs(r));
    return most / magnitude;
}

}  // namespace quadrille::test
