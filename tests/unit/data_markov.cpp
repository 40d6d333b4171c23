#include <doctest.h>

#include "data/markov.hpp"

#include <cmath>
#include <map>
#include <set>

using namespace quadrille;

namespace {
std::vector<std::int32_t> read(const SampleSet& samples, std::int64_t i, std::vector<std::int32_t>* starts = nullptr) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(samples.seq_length() + 1)), documents(tokens.size());
    Window window{tokens, documents};
    samples.read(i, window);
    CHECK(window.length == samples.seq_length() + 1);
    if (starts) *starts = documents;
    return tokens;
}
}  // namespace

TEST_CASE("successors are distinct and the chain is doubly stochastic") {
    for (std::int64_t vocab : {1, 2, 3, 4, 5, 257, 1000}) {
        const MarkovChain chain(99, vocab);
        std::vector<double> in(static_cast<std::size_t>(vocab), 0.0);
        for (std::int32_t v = 0; v < vocab; ++v) {
            std::set<std::int32_t> next;
            for (std::int64_t k = 0; k < chain.branches(); ++k) {
                next.insert(chain.successor(v, k));
                in.at(static_cast<std::size_t>(chain.successor(v, k))) += chain.probability(k);
            }
            REQUIRE(static_cast<std::int64_t>(next.size()) == chain.branches());
        }
        for (const double p : in) REQUIRE(p == 1.0);
    }
}

TEST_CASE("the entropy is the chain's") {
    CHECK(MarkovChain(1, 257).entropy() == doctest::Approx(1.75 * std::log(2.0)).epsilon(1e-15));
    CHECK(MarkovChain(1, 3).entropy() == doctest::Approx(1.5 * std::log(2.0)).epsilon(1e-15));
    CHECK(MarkovChain(1, 1).entropy() == 0.0);
    // An ideal model, −log p of what was drawn, averages to it; one that counts pairs agrees.
    const MarkovChain chain(3, 17);
    const MarkovSamples samples(chain, 3, 0, 1000);
    std::map<std::pair<int, int>, double> pairs;
    std::map<int, double> singles;
    double loss = 0, n = 0;
    for (std::int64_t i = 0; i < 200; ++i) {
        const auto t = read(samples, i);
        for (std::size_t j = 1; j < t.size(); ++j) {
            double p = 0;
            for (std::int64_t k = 0; k < chain.branches(); ++k)
                if (chain.successor(t[j - 1], k) == t[j]) p = chain.probability(k);
            REQUIRE(p > 0);
            loss -= std::log(p);
            ++pairs[{t[j - 1], t[j]}];
            ++singles[t[j - 1]];
            ++n;
        }
    }
    double empirical = 0;
    for (const auto& [pair, count] : pairs) empirical -= count / n * std::log(count / singles[pair.first]);
    CHECK(loss / n == doctest::Approx(chain.entropy()).epsilon(0.005));
    CHECK(empirical == doctest::Approx(chain.entropy()).epsilon(0.005));
    CHECK(singles.size() == 17);
    for (const auto& [token, count] : singles) CHECK(count / n * 17 == doctest::Approx(1.0).epsilon(0.05));
}

TEST_CASE("samples are functions of (seed, stream, number)") {
    const MarkovSamples a(MarkovChain(5, 50000), 5, 0, 64), b(MarkovChain(5, 50000), 5, 0, 64), c(MarkovChain(6, 50000), 6, 0, 64),
        d(MarkovChain(5, 50000), 5, 1, 64);
    const std::int64_t far = std::int64_t{1} << 50;
    CHECK(read(a, far) == read(b, far));
    CHECK(read(a, 7) == read(b, 7));
    CHECK(read(a, 7) != read(a, 8));
    CHECK(read(a, 7) != read(c, 7));
    CHECK(read(a, 7) != read(d, 7));
}

TEST_CASE("documents end with the token asked for") {
    const MarkovSamples samples(MarkovChain(5, 7), 5, 0, 200, 3);
    std::vector<std::int32_t> starts;
    const auto tokens = read(samples, 0, &starts);
    std::int32_t start = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        if (i > 0 && tokens[i - 1] == 3) start = static_cast<std::int32_t>(i);
        CHECK(starts[i] == start);
    }
    CHECK(start > 0);
}
