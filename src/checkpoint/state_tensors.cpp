#include "checkpoint/state_tensors.hpp"

#include <array>
#include <functional>
#include <numeric>

namespace quadrille {
namespace {

constexpr std::array<StateKind, 4> beside_parameters = {StateKind::m, StateKind::v, StateKind::residual, StateKind::stale};

// The dataset's shape, if any rank has such state: so many terms of it, or 1 where it is whole.
std::vector<std::int64_t> shape_of(const Parameter& p, StateKind what, std::int64_t terms) {
    std::vector<std::int64_t> shape = p.shape;
    if (is_term(what)) shape.insert(shape.begin(), terms);
    return shape;
}

}  // namespace

std::string dataset_path(const std::string& parameter, StateKind what) {
    switch (what) {
        case StateKind::weight:
        case StateKind::master: return "/parameters/" + parameter;
        case StateKind::m: return "/optimizer/m/" + parameter;
        case StateKind::v: return "/optimizer/v/" + parameter;
        case StateKind::residual: return "/residual/" + parameter;
        case StateKind::stale: return "/stale/" + parameter;
        case StateKind::none:
        case StateKind::gradient: break;
    }
    return "";
}

std::vector<StateTensor> state_tensors(const Collectives& ranks, const Holdings& held) {
    const std::vector<Parameter>& parameters = held.program().parameters;
    const std::size_t n = parameters.size();
    std::vector<std::int64_t> terms;
    for (const StateKind what : beside_parameters)
        for (std::size_t p = 0; p < n; ++p) {
            const int parameter = static_cast<int>(p);
            terms.push_back(is_term(what) ? held.terms(parameter, what) : held.has(parameter, what));
        }
    ranks.max(std::span(terms));
    std::vector<StateTensor> all;
    const auto add = [&](std::size_t p, StateKind what, std::int64_t of) {
        StateTensor& t = all.emplace_back();
        t.stored.path = dataset_path(parameters[p].name, what);
        t.stored.shape = shape_of(parameters[p], what, of);
        t.parameter = static_cast<int>(p);
        t.what = what;
    };
    for (std::size_t p = 0; p < n; ++p) add(p, StateKind::master, 1);
    for (std::size_t k = 0; k < beside_parameters.size(); ++k)
        for (std::size_t p = 0; p < n; ++p)
            if (const std::int64_t of = terms[k * n + p]; of > 0) add(p, beside_parameters[k], of);
    return all;
}

std::int64_t bytes_of(const std::vector<StateTensor>& tensors) {
    std::int64_t bytes = 0;
    for (const StateTensor& t : tensors)
        bytes += std::accumulate(t.stored.shape.begin(), t.stored.shape.end(), std::int64_t{sizeof(float)}, std::multiplies<>());
    return bytes;
}

}  // namespace quadrille
