#include "plan/simulate.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace quadrille {

Timeline simulate(const std::vector<Order>& orders, const std::vector<ActionCosts>& costs) {
    const int last = static_cast<int>(costs.size()) - 1;
    std::map<std::tuple<bool, int, int>, double> made;  // backward?, chunk, microbatch -> when
    std::vector<std::size_t> at(orders.size(), 0);
    std::vector<double> free(orders.size(), 0);
    double busy = 0;
    std::size_t left = 0;
    for (const Order& o : orders) left += o.size();
    for (bool moving = true; moving && left > 0;) {
        moving = false;
        for (std::size_t r = 0; r < orders.size(); ++r)
            while (at[r] < orders[r].size()) {
                const Action& a = orders[r][at[r]];
                const ActionCosts& cost = costs[static_cast<std::size_t>(a.chunk)];
                const bool backward = a.phase != Phase::forward;
                double ready = 0;
                const int from = backward ? a.chunk + 1 : a.chunk - 1;
                if (a.phase != Phase::backward_weight && from >= 0 && from <= last) {
                    const auto it = made.find({backward, from, a.microbatch});
                    if (it == made.end()) break;
                    ready = it->second;
                }
                const double takes = a.phase == Phase::forward ? cost.forward
                                     : a.phase == Phase::backward_input ? cost.backward_input
                                     : a.phase == Phase::backward_weight ? cost.backward_weight : cost.backward_input + cost.backward_weight;
                free[r] = std::max(free[r], ready) + takes;
                busy += takes;
                if (a.phase != Phase::backward_weight) made[{backward, a.chunk, a.microbatch}] = free[r];
                ++at[r];
                --left;
                moving = true;
            }
    }
    require(left == 0, "plan: the pipeline's order cannot finish");
    Timeline t;
    for (const double f : free) t.seconds = std::max(t.seconds, f);
    t.bubble_fraction = t.seconds > 0 ? 1 - busy / (t.seconds * static_cast<double>(orders.size())) : 0;
    return t;
}

}  // namespace quadrille
