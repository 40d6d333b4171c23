// Vocabulary-parallel cross-entropy, cut over pretended ranks, against the float64 log-softmax of the whole row; its gradient
// against central differences. Tolerances: 2e-6 a token, gradients 2e-6 absolute plus the rounding of the logits' type.
#include "kernels/device.hpp"
#include "kernels/reference.hpp"
#include <limits>

using namespace quadrille;
using namespace quadrille::test;

namespace {

double token_loss(const std::vector<float>& sums, const std::vector<std::uint8_t>& mask, double before = 0.0) {
    std::vector<double> loss = {before};
    kernels()->token_loss(std::ssize(mask), sums.data(), mask.data(), loss.data(), before != 0.0);
    return loss[0];
}

std::vector<float> token_loss_dx(const std::vector<float>& sums, const std::vector<std::uint8_t>& mask, double dloss) {
    const std::vector<double> factor = {dloss};
    std::vector<float> dsums(sums.size());
    kernels()->token_loss_dx(std::ssize(mask), sums.data(), mask.data(), factor.data(), dsums.data());
    return dsums;
}

// Logits of `tokens` x `vocabulary`, cut in blocks of `columns`; the last one padded.
struct Problem {
    Problem(std::int64_t tokens_, std::int64_t vocabulary_, std::int64_t columns_, DType t_)
        : tokens(tokens_), vocabulary(vocabulary_), columns(columns_), t(t_) {
        std::mt19937 engine(3);
        const auto n = static_cast<std::size_t>(tokens);
        for (std::size_t i = 0; i < n; ++i) {
            target.push_back(static_cast<std::int32_t>(engine() % static_cast<unsigned>(vocabulary)));
            mask.push_back(engine() % 4 != 0);
        }
        const std::int64_t blocks = (vocabulary + columns - 1) / columns;
        x.resize(n * static_cast<std::size_t>(vocabulary));
        for (std::int64_t b = 0; b < blocks; ++b) {
            Logits l{.tokens = tokens, .columns = columns, .real_columns = std::min(columns, vocabulary - b * columns)};
            l.first_column = b * columns, l.t = t;
            Operand o = operand(tokens * columns, t, 10 + static_cast<unsigned>(b), 3.0);
            for (std::int64_t i = 0; i < tokens; ++i)
                for (std::int64_t c = 0; c < l.real_columns; ++c)
                    x[static_cast<std::size_t>(i * vocabulary + l.first_column + c)] = o.x[static_cast<std::size_t>(i * columns + c)];
            cuts.push_back(l);
            logits.push_back(o.stored);
        }
    }
    // The three ops with the moves done by hand.
    std::vector<float> sums() {
        const auto n = static_cast<std::size_t>(tokens);
        max.assign(n, -std::numeric_limits<float>::infinity());
        std::vector<float> part(2 * n), sum(2 * n, 0.0f);
        for (std::size_t b = 0; b < cuts.size(); ++b) {
            kernels()->logit_max(cuts[b], logits[b].data(), part.data());
            for (std::size_t i = 0; i < n; ++i) max[i] = std::max(max[i], part[i]);
        }
        for (std::size_t b = 0; b < cuts.size(); ++b) {
            kernels()->logit_sums(cuts[b], logits[b].data(), max.data(), target.data(), part.data());
            for (std::size_t i = 0; i < 2 * n; ++i) sum[i] += part[i];
        }
        return sum;
    }
    double loss64(const Values& at) const {
        double loss = 0.0;
        for (std::int64_t i = 0; i < tokens; ++i) {
            if (!mask[static_cast<std::size_t>(i)]) continue;
            const double* row = at.data() + i * vocabulary;
            double sum = 0.0;
            for (std::int64_t c = 0; c < vocabulary; ++c) sum += std::exp(row[c]);
            loss += std::log(sum) - row[target[static_cast<std::size_t>(i)]];
        }
        return loss;
    }
    std::int64_t tokens, vocabulary, columns;
    DType t;
    std::vector<std::int32_t> target;
    std::vector<std::uint8_t> mask;
    std::vector<Logits> cuts;
    std::vector<Stored> logits;
    std::vector<float> max;
    Values x;
};

}  // namespace

TEST_CASE("loss and gradient on whole, even and odd cuts") {
    for (const DType t : storage_types)
        for (const std::int64_t vocabulary : odd_sizes)
            for (const std::int64_t columns : {vocabulary, vocabulary / 2 + 1, vocabulary / 3 + 1}) {
                CAPTURE(vocabulary);
                CAPTURE(columns);
                CAPTURE(name_of(t));
                Problem p(9, vocabulary, columns, t);
                const std::vector<float> sums = p.sums();
                const double loss = token_loss(sums, p.mask);
                CHECK(loss == doctest::Approx(p.loss64(p.x)).epsilon(2e-6));
                CHECK(token_loss(sums, p.mask, 3.25) == loss + 3.25);

                const std::vector<float> dsums = token_loss_dx(sums, p.mask, 0.7);
                const Values want = central_difference([&](const Values& at) { return 0.7 * p.loss64(at); }, p.x);
                for (std::size_t b = 0; b < p.cuts.size(); ++b) {
                    const Logits& l = p.cuts[b];
                    Stored d = garbage(l.tokens * l.columns, t);
                    kernels()->logit_sums_dx(l, p.logits[b].data(), p.max.data(), p.target.data(), dsums.data(), d.data());
                    const Values got = values(d);
                    for (std::int64_t i = 0; i < l.tokens; ++i)
                        for (std::int64_t c = 0; c < l.columns; ++c) {
                            const double g = got[static_cast<std::size_t>(i * l.columns + c)];
                            if (c >= l.real_columns || !p.mask[static_cast<std::size_t>(i)])
                                CHECK(g == 0.0);
                            else {
                                const double w = want[static_cast<std::size_t>(i * vocabulary + l.first_column + c)];
                                CHECK(std::abs(g - w) <= rounding(t) * std::abs(w) + 2e-6);
                            }
                        }
                    kernels()->logit_sums_dx(l, p.logits[b].data(), p.max.data(), p.target.data(), dsums.data(), p.logits[b].data());
                    CHECK(p.logits[b].bytes == d.bytes);  // in place
                }
            }
}

TEST_CASE("an uncounted token gives exact zeros from any logits") {
    const float inf = std::numeric_limits<float>::infinity();
    const std::vector<float> logits = {inf, -inf, 1e38f, std::nanf("")};
    const std::vector<std::int32_t> target = {2};
    const std::vector<std::uint8_t> mask = {0};
    const Logits l{.tokens = 1, .columns = 4, .real_columns = 4};
    std::vector<float> max(1), sums(2), d(4);
    kernels()->logit_max(l, logits.data(), max.data());
    kernels()->logit_sums(l, logits.data(), max.data(), target.data(), sums.data());
    CHECK(token_loss(sums, mask) == 0.0);
    const std::vector<float> dsums = token_loss_dx(sums, mask, 1.0);
    kernels()->logit_sums_dx(l, logits.data(), max.data(), target.data(), dsums.data(), d.data());
    for (const float g : d) CHECK(g == 0.0f);
}

TEST_CASE("a counted NaN or infinite logit shows in the loss") {
    for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()})
        for (std::int64_t at = 0; at < 60; at += 7) {
            std::vector<float> logits(60, 0.5f);
            logits[static_cast<std::size_t>(at)] = bad;
            const std::vector<std::int32_t> target = {3};
            const Logits l{.tokens = 1, .columns = 60, .real_columns = 60};
            std::vector<float> max(1), sums(2);
            kernels()->logit_max(l, logits.data(), max.data());
            kernels()->logit_sums(l, logits.data(), max.data(), target.data(), sums.data());
            CHECK(!std::isfinite(token_loss(sums, {1})));
        }
}

TEST_CASE("logits in the thousands do not overflow; a block of padding alone has no part") {
    const std::vector<float> logits = {5000.0f, 4999.0f};
    const std::vector<std::int32_t> target = {1};
    Logits l{.tokens = 1, .columns = 2, .real_columns = 2};
    std::vector<float> max(1), sums(2);
    kernels()->logit_max(l, logits.data(), max.data());
    kernels()->logit_sums(l, logits.data(), max.data(), target.data(), sums.data());
    CHECK(token_loss(sums, {1}) == doctest::Approx(1.0 + std::log1p(std::exp(-1.0))));
    l.first_column = 2, l.real_columns = 0;
    std::vector<float> padding_max(1);
    kernels()->logit_max(l, logits.data(), padding_max.data());
    CHECK(padding_max[0] == -std::numeric_limits<float>::infinity());
    kernels()->logit_sums(l, logits.data(), max.data(), target.data(), sums.data());
    CHECK(sums[0] == 0.0f);
    CHECK(sums[1] == 0.0f);
}

TEST_CASE("the same bits on any number of threads") {
    for (const DType t : storage_types)
        CHECK(same_bits_on_any_threads([&] {
            Problem p(70, 2570, 1285, t);
            const std::vector<float> sums = p.sums();
            const std::vector<float> dsums = token_loss_dx(sums, p.mask, 1.0);
            Stored d = garbage(70 * 1285, t);
            kernels()->logit_sums_dx(p.cuts[0], p.logits[0].data(), p.max.data(), p.target.data(), dsums.data(), d.data());
            return d.bytes;
        }));
}
