#include "plan/simulate.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace quadrille {
namespace {

double duration(Phase phase, const ActionCosts& cost) {
    switch (phase) {
        case Phase::forward: return cost.forward;
        case Phase::backward_input: return cost.backward_input;
        case Phase::backward_weight: return cost.backward_weight;
        case Phase::backward: return cost.backward_input + cost.backward_weight;
    }
    return 0;
}

class Simulation {
  public:
    Simulation(const std::vector<Order>& orders, const std::vector<ActionCosts>& costs)
        : orders_(orders), costs_(costs), at_(orders.size(), 0), free_(orders.size(), 0) {}

    Timeline run() {
        for (bool moving = true; moving;) {
            moving = false;
            for (std::size_t r = 0; r < orders_.size(); ++r)
                while (at_[r] < orders_[r].size() && act(r, orders_[r][at_[r]])) moving = true;
        }
        Timeline t;
        for (std::size_t r = 0; r < orders_.size(); ++r) {
            require(at_[r] == orders_[r].size(), "plan: the pipeline's order cannot finish");
            t.seconds = std::max(t.seconds, free_[r]);
        }
        t.bubble_fraction = t.seconds > 0 ? 1 - busy_ / (t.seconds * static_cast<double>(orders_.size())) : 0;
        return t;
    }

  private:
    // False while what the action reads is not made.
    bool act(std::size_t r, const Action& a) {
        const bool backward = a.phase != Phase::forward, weights = a.phase == Phase::backward_weight;
        const int from = backward ? a.chunk + 1 : a.chunk - 1;
        double ready = 0;
        if (!weights && from >= 0 && from < static_cast<int>(costs_.size())) {
            const auto it = made_.find({backward, from, a.microbatch});
            if (it == made_.end()) return false;
            ready = it->second;
        }
        const double takes = duration(a.phase, costs_[static_cast<std::size_t>(a.chunk)]);
        free_[r] = std::max(free_[r], ready) + takes;
        busy_ += takes;
        if (!weights) made_[{backward, a.chunk, a.microbatch}] = free_[r];
        ++at_[r];
        return true;
    }

    const std::vector<Order>& orders_;
    const std::vector<ActionCosts>& costs_;
    std::vector<std::size_t> at_;
    std::vector<double> free_;                           // when each coordinate is done with what it began
    std::map<std::tuple<bool, int, int>, double> made_;  // backward?, chunk, microbatch -> when
    double busy_ = 0;
};

}  // namespace

Timeline simulate(const std::vector<Order>& orders, const std::vector<ActionCosts>& costs) { return Simulation(orders, costs).run(); }

}  // namespace quadrille
