#include <doctest.h>

#include "data/permutation.hpp"

#include <set>
#include <vector>

using quadrille::Permutation;

TEST_CASE("every index is hit once, at every size") {
    for (std::int64_t n : {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 64, 100, 1000, 4095, 4096, 4097, 65537}) {
        const Permutation p(42, n);
        std::vector<int> hits(static_cast<std::size_t>(n));
        for (std::int64_t i = 0; i < n; ++i) ++hits.at(static_cast<std::size_t>(p(i)));
        for (const int h : hits) REQUIRE(h == 1);
    }
}

TEST_CASE("keys give different orders, one key the same") {
    std::set<std::vector<std::int64_t>> orders;
    for (std::uint64_t key = 0; key < 50; ++key) {
        std::vector<std::int64_t> order, again;
        const Permutation p(key, 100), q(key, 100);
        for (std::int64_t i = 0; i < 100; ++i) {
            order.push_back(p(i));
            again.push_back(q(i));
        }
        CHECK(order == again);
        orders.insert(order);
    }
    CHECK(orders.size() == 50);
}

// Over many keys every index should go everywhere about equally often: chi-square with 49 of freedom per row, far below 200.
TEST_CASE("places are about uniform over keys") {
    constexpr std::int64_t n = 50, keys = 5000;
    for (const std::int64_t index : {0, 1, 25, 49}) {
        std::vector<double> count(n, 0.0);
        for (std::uint64_t key = 0; key < keys; ++key) ++count[static_cast<std::size_t>(Permutation(quadrille::mix64(key + 1), n)(index))];
        double chi = 0;
        for (const double c : count) chi += (c - keys / n) * (c - keys / n) / (keys / n);
        CHECK(chi < 100);
    }
}

TEST_CASE("large sizes stay in range and do not repeat") {
    const std::int64_t n = (std::int64_t{1} << 40) + 12345;
    const Permutation p(7, n);
    std::set<std::int64_t> seen;
    for (std::int64_t i = 0; i < 10000; ++i) {
        const std::int64_t at = p(n - 1 - i * 1000003);
        REQUIRE((at >= 0 && at < n));
        seen.insert(at);
    }
    CHECK(seen.size() == 10000);
    CHECK_THROWS_AS(p(n), std::logic_error);
    CHECK_THROWS_AS(Permutation(1, 0), std::logic_error);
}
