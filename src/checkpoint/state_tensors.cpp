#include "checkpoint/state_tensors.hpp"

#include <array>

namespace quadrille {
namespace {

constexpr std::array<StateKind, 2> moments = {StateKind::m, StateKind::v};

}  // namespace

std::string dataset_path(const std::string& parameter, StateKind what) {
    switch (what) {
        case StateKind::weight:
        case StateKind::master: return "/parameters/" + parameter;
        case StateKind::m: return "/optimizer/m/" + parameter;
        case StateKind::v: return "/optimizer/v/" + parameter;
        case StateKind::none:
        case StateKind::residual:  // of one grid's ranks
        case StateKind::stale:
        case StateKind::gradient: break;
    }
    return "";
}

bool has_state(const Program& training, int parameter, StateKind what) {
    const auto found = training.find(parameter);
    return found && training.initial_state(what, static_cast<std::int32_t>(found->unit)) >= 0;
}

std::vector<StateTensor> state_tensors(const Collectives& ranks, const Program& training) {
    const std::size_t n = training.parameters.size();
    std::vector<std::int64_t> has;
    for (const StateKind what : moments)
        for (std::size_t p = 0; p < n; ++p) has.push_back(has_state(training, static_cast<int>(p), what));
    ranks.max(std::span(has));
    std::vector<StateTensor> all;
    const auto add = [&](std::size_t p, StateKind what) {
        const Parameter& q = training.parameters[p];
        StateTensor& t = all.emplace_back();
        t.stored.path = dataset_path(q.name, what);
        t.stored.shape = q.shape;
        t.parameter = static_cast<int>(p);
        t.what = what;
    };
    for (std::size_t p = 0; p < n; ++p) add(p, StateKind::master);
    for (std::size_t k = 0; k < moments.size(); ++k)
        for (std::size_t p = 0; p < n; ++p)
            if (has[k * n + p]) add(p, moments[k]);
    return all;
}

}  // namespace quadrille
