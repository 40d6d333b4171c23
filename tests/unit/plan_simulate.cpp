#include "plan/simulate.hpp"

#include <doctest.h>

#include <stdexcept>

using namespace quadrille;

namespace {

double bubble(Schedule kind, int pp, int virtual_stages, int microbatches, ActionCosts costs = {}) {
    return simulate(schedule(kind, pp, virtual_stages, microbatches),
                    std::vector<ActionCosts>(static_cast<std::size_t>(pp * virtual_stages), costs))
        .bubble_fraction;
}

}  // namespace

TEST_CASE("the bubble of GPipe and 1F1B is (p - 1) / (m + p - 1)") {
    for (const int pp : {1, 2, 3, 4, 8})
        for (const int m : {1, 2, 4, 7, 16, 64}) {
            const double want = static_cast<double>(pp - 1) / (m + pp - 1);
            for (const ActionCosts costs : {ActionCosts{1, 0.5, 0.5}, ActionCosts{1, 1, 1}, ActionCosts{3, 1, 1}}) {
                CHECK(bubble(Schedule::gpipe, pp, 1, m, costs) == doctest::Approx(want));
                CHECK(bubble(Schedule::one_f_one_b, pp, 1, m, costs) == doctest::Approx(want));
            }
        }
}

TEST_CASE("interleaving divides the bubble's time by the stages: (p - 1) / (v m + p - 1)") {
    for (const int v : {2, 4}) CHECK(bubble(Schedule::interleaved, 4, v, 8) == doctest::Approx(3.0 / (v * 8 + 3)));
}

TEST_CASE("weight gradients fill the drain: ZB-H1 idles a third of 1F1B") {
    const auto idle = [](Schedule kind, int pp, int m) {  // time units of one coordinate
        const double f = bubble(kind, pp, 1, m);
        return f / (1 - f) * 3 * m;
    };
    for (const int pp : {2, 4, 8}) {
        CHECK(idle(Schedule::one_f_one_b, pp, 16) == doctest::Approx(3 * (pp - 1)));
        CHECK(idle(Schedule::zero_bubble, pp, 16) == doctest::Approx(pp - 1));
    }
}

TEST_CASE("uneven stages: everyone waits for the slowest") {
    const auto orders = schedule(Schedule::one_f_one_b, 2, 1, 100);
    const Timeline t = simulate(orders, {ActionCosts{1, 1, 1}, ActionCosts{2, 2, 2}});
    CHECK(t.seconds == doctest::Approx(600 + 3));
    CHECK(t.bubble_fraction == doctest::Approx(1 - 900.0 / (2 * 603)));
}

TEST_CASE("an order that cannot finish is refused") {
    std::vector<Order> orders = {{{Phase::backward, 0, 0}, {Phase::forward, 0, 0}},
                                 {{Phase::forward, 1, 0}, {Phase::backward, 1, 0}}};
    CHECK_THROWS_AS(simulate(orders, {{}, {}}), std::logic_error);
}
