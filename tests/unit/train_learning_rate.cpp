// The schedules at their ends: warm-up of none, of one step, of all steps and of more; every decay; min_lr from none to lr.
#include "train/learning_rate.hpp"

#include <doctest.h>

#include <cmath>

using namespace quadrille;

namespace {

constexpr std::int64_t steps = 20;

OptimizerConfig optimizer(LrSchedule schedule, std::int64_t warmup, double min_lr) {
    OptimizerConfig o;
    o.lr = 1.0;
    o.min_lr = min_lr;
    o.lr_schedule = schedule;
    o.warmup_steps = warmup;
    o.decay_steps = schedule == LrSchedule::wsd ? steps / 10 : steps;
    return o;
}

constexpr LrSchedule all_schedules[] = {LrSchedule::constant, LrSchedule::linear, LrSchedule::cosine, LrSchedule::wsd};

}  // namespace

TEST_CASE("every rate is finite, above zero where min_lr or the warm-up is, and between min_lr and lr") {
    for (const LrSchedule schedule : all_schedules)
        for (const std::int64_t warmup : {std::int64_t{0}, std::int64_t{1}, std::int64_t{4}, steps, steps + 1})
            for (const double min_lr : {0.0, 0.1, 1.0}) {
                const OptimizerConfig o = optimizer(schedule, warmup, min_lr);
                CHECK(learning_rate(o, steps, 1) > 0.0);
                for (std::int64_t k = 1; k <= steps; ++k) {
                    const double lr = learning_rate(o, steps, k);
                    CHECK(std::isfinite(lr));
                    CHECK(lr <= 1.0);
                    if (k > warmup) CHECK(lr >= min_lr);
                    if (k <= warmup) CHECK(lr == doctest::Approx(static_cast<double>(k) / static_cast<double>(warmup)));
                }
            }
}

TEST_CASE("the peak is reached at the end of the warm-up, the end value at the last step") {
    for (const LrSchedule schedule : all_schedules) {
        const OptimizerConfig o = optimizer(schedule, 4, 0.1);
        CHECK(learning_rate(o, steps, 4) == 1.0);
        CHECK(learning_rate(o, steps, steps) == doctest::Approx(schedule == LrSchedule::constant ? 1.0 : 0.1));
        CHECK(learning_rate(o, steps, 1) == 0.25);
    }
}

TEST_CASE("half way") {
    CHECK(learning_rate(optimizer(LrSchedule::linear, 0, 0.0), steps, 10) == doctest::Approx(0.5));
    CHECK(learning_rate(optimizer(LrSchedule::cosine, 0, 0.0), steps, 5) == doctest::Approx(0.5 + 0.5 * std::cos(0.25 * 3.14159265358979)));
    CHECK(learning_rate(optimizer(LrSchedule::wsd, 0, 0.0), steps, 18) == 1.0);
    CHECK(learning_rate(optimizer(LrSchedule::wsd, 0, 0.0), steps, 19) == doctest::Approx(0.5));
}

TEST_CASE("after decay_steps the rate stays at min_lr") {
    OptimizerConfig o = optimizer(LrSchedule::cosine, 2, 0.1);
    o.decay_steps = 10;
    for (std::int64_t k = 10; k <= steps; ++k) CHECK(learning_rate(o, steps, k) == doctest::Approx(0.1));
}
