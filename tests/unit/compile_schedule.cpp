#include "compile/schedule.hpp"

#include <doctest.h>

#include <algorithm>
#include <map>
#include <stdexcept>

using namespace quadrille;

namespace {

std::vector<std::string> texts(const std::vector<Order>& orders) {
    std::vector<std::string> out;
    for (const Order& o : orders) out.push_back(text(o));
    return out;
}

using Texts = std::vector<std::string>;

struct Run {
    Schedule kind;
    int virtual_stages;
};
const std::vector<Run> runs = {{Schedule::gpipe, 1},       {Schedule::gpipe, 3},       {Schedule::one_f_one_b, 1},
                               {Schedule::interleaved, 2}, {Schedule::interleaved, 3}, {Schedule::zero_bubble, 1}};

template <class F>
void for_all_schedules(F f) {
    for (const Run& run : runs)
        for (const int pp : {1, 2, 3, 4, 8})
            for (const int microbatches : {1, 2, 4, 5, 16}) {
                if (run.kind == Schedule::interleaved && microbatches % pp != 0) continue;
                CAPTURE(static_cast<int>(run.kind));
                CAPTURE(pp);
                CAPTURE(microbatches);
                f(run, pp, microbatches, schedule(run.kind, pp, run.virtual_stages, microbatches));
            }
}

}  // namespace

TEST_CASE("small orders, as in the papers") {
    CHECK(texts(schedule(Schedule::gpipe, 2, 1, 3)) == Texts{"0F0 0F1 0F2 0B0 0B1 0B2", "1F0 1F1 1F2 1B0 1B1 1B2"});
    CHECK(texts(schedule(Schedule::gpipe, 1, 2, 2)) == Texts{"0F0 0F1 1F0 1F1 1B0 0B0 1B1 0B1"});
    CHECK(texts(schedule(Schedule::one_f_one_b, 3, 1, 4)) ==
          Texts{"0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3", "1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3", "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3"});
    CHECK(texts(schedule(Schedule::interleaved, 2, 2, 4)) ==
          Texts{"0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3",
                "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3"});
    CHECK(texts(schedule(Schedule::zero_bubble, 2, 1, 3)) ==
          Texts{"0F0 0F1 0I0 0W0 0F2 0I1 0W1 0I2 0W2", "1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2"});
    CHECK(texts(schedule(Schedule::one_f_one_b, 1, 1, 2)) == Texts{"0F0 0B0 0F1 0B1"});
    CHECK(texts(forward_only(2, 2, 2)) == Texts{"0F0 2F0 0F1 2F1", "1F0 3F0 1F1 3F1"});
}

TEST_CASE("every part of every microbatch once, on its chunk's coordinate, backward after forward") {
    for_all_schedules([](const Run& run, int pp, int microbatches, const std::vector<Order>& orders) {
        CHECK(static_cast<int>(orders.size()) == pp);
        for (int r = 0; r < pp; ++r) {
            std::map<std::tuple<int, int, int>, int> at;  // phase, chunk, microbatch -> position
            const Order& order = orders[static_cast<std::size_t>(r)];
            for (std::size_t i = 0; i < order.size(); ++i) {
                const Action& a = order[i];
                CHECK(a.chunk % pp == r);
                CHECK(at.emplace(std::tuple(static_cast<int>(a.phase), a.chunk, a.microbatch), static_cast<int>(i)).second);
            }
            const int parts = run.kind == Schedule::zero_bubble ? 3 : 2;
            CHECK(static_cast<int>(at.size()) == parts * run.virtual_stages * microbatches);
            for (const auto& [key, i] : at) {
                const auto [phase, chunk, m] = key;
                const auto before = static_cast<Phase>(phase) == Phase::backward_weight ? Phase::backward_input : Phase::forward;
                if (static_cast<Phase>(phase) != Phase::forward) CHECK(at.at({static_cast<int>(before), chunk, m}) < i);
            }
        }
    });
}

TEST_CASE("backwards of a chunk run in ascending microbatch order: the same sums in every schedule") {
    for_all_schedules([](const Run&, int, int, const std::vector<Order>& orders) {
        for (const Order& order : orders) {
            std::map<std::pair<int, int>, int> last;  // phase, chunk -> microbatch
            for (const Action& a : order) {
                if (a.phase == Phase::forward) continue;
                const auto it = last.find({static_cast<int>(a.phase), a.chunk});
                CHECK(a.microbatch == (it == last.end() ? 0 : it->second + 1));
                last[{static_cast<int>(a.phase), a.chunk}] = a.microbatch;
            }
        }
    });
}

TEST_CASE("how many microbatches' activations live at once") {
    const auto peak = [](const Order& order, Phase end) {
        int live = 0, most = 0;
        for (const Action& a : order) {
            live += a.phase == Phase::forward ? 1 : a.phase == end ? -1 : 0;
            most = std::max(most, live);
        }
        return most;
    };
    for_all_schedules([&](const Run& run, int pp, int microbatches, const std::vector<Order>& orders) {
        for (int r = 0; r < pp; ++r) {
            const Order& order = orders[static_cast<std::size_t>(r)];
            if (run.kind == Schedule::gpipe) CHECK(peak(order, Phase::backward) == run.virtual_stages * microbatches);
            if (run.kind == Schedule::one_f_one_b) CHECK(peak(order, Phase::backward) == std::min(microbatches, pp - r));
            if (run.kind == Schedule::zero_bubble) {
                CHECK(peak(order, Phase::backward_input) == std::min(microbatches, pp - r));
                CHECK(peak(order, Phase::backward_weight) <= pp);  // ZB-H1: no more than 1F1B's first coordinate
            }
            if (run.kind == Schedule::interleaved)
                CHECK(peak(order, Phase::backward) <=
                      std::min(run.virtual_stages * microbatches, (pp - r - 1) * 2 + (run.virtual_stages - 1) * pp + 1));
        }
    });
}

TEST_CASE("what is no schedule") {
    CHECK_THROWS_AS(schedule(Schedule::interleaved, 4, 2, 6), std::logic_error);
    CHECK_THROWS_AS(schedule(Schedule::one_f_one_b, 2, 2, 4), std::logic_error);
    CHECK_THROWS_AS(schedule(Schedule::zero_bubble, 2, 2, 4), std::logic_error);
}
