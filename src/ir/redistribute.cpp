// The one collective: which pair of placements a Redistribute goes between, and when it may.
#include "ir/program.hpp"
#include "ir/rules.hpp"

#include <algorithm>

namespace quadrille {
namespace {

enum class At : std::uint8_t { replicated, partial_sum, partial_max, cut };
struct State { At at = At::replicated; int dim = -1; Cut cut; };

State state(const Placement& p, Axis a) {
    if (p.partial_sum.has(a)) return {At::partial_sum, -1, {}};
    if (p.partial_max.has(a)) return {At::partial_max, -1, {}};
    for (std::size_t d = 0; d < max_dims; ++d)
        for (const Cut& c : p.cuts[d])
            if (c.axis == a) return {At::cut, static_cast<int>(d), c};
    return {};
}

bool same(const State& a, const State& b) { return a.at == b.at && a.dim == b.dim && a.cut == b.cut; }

Pair pair_of(const State& from, const State& to, Axis a) {
    const bool partial = from.at == At::partial_sum || from.at == At::partial_max;
    if (partial && to.at == At::replicated) return Pair::all_reduce;
    if (from.at == At::partial_sum && to.at == At::cut) return Pair::reduce_scatter;
    if (from.at == At::cut && to.at == At::replicated) return Pair::all_gather;
    if (from.at == At::cut && to.at == At::cut) return from.dim == to.dim ? Pair::ring_shift : Pair::all_to_all;
    if (from.at == At::replicated && to.at == At::cut) return Pair::slice;
    if (from.at == At::replicated && to.at == At::partial_sum) return Pair::first_keeps;
    throw TypingError(fmt::format("no move leads there along {}", name_of(a)));
}

// Only the innermost axes of a dim may come or go: what moves must stand inside what stays.
void demand_innermost(const TensorType& from, const Placement& to, Pair pair) {
    for (std::size_t d = 0; d < max_dims; ++d) {
        const Cuts &a = from.place.cuts[d], &b = to.cuts[d];
        std::size_t k = 0;
        while (k < a.count && k < b.count && a.cut[k] == b.cut[k]) ++k;
        AxisSet rest_a, rest_b;
        for (std::size_t i = k; i < a.count; ++i) rest_a |= a.cut[i].axis;
        for (std::size_t i = k; i < b.count; ++i) rest_b |= b.cut[i].axis;
        if (pair != Pair::ring_shift && !(rest_a & rest_b).empty())
            throw TypingError(fmt::format("an outer cut of {} changes under an inner one", text(from)));
    }
}

}  // namespace

std::string_view name_of(Pair p) {
    constexpr std::array<std::string_view, 7> names = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all",
                                                       "ring_shift", "slice", "first_keeps"};
    return names[static_cast<std::size_t>(p)];
}

Change change(const TensorType& from, const Placement& to) {
    Change c{Pair::slice, {}, -1, -1, false};
    for (const Axis a : all_axes) {
        const State x = state(from.place, a), y = state(to, a);
        if (same(x, y)) continue;
        const Pair p = pair_of(x, y, a);
        const bool max = x.at == At::partial_max;
        if (!c.axes.empty() && (c.pair != p || c.from_dim != x.dim || c.to_dim != y.dim || c.max != max))
            throw TypingError("more than one pair of placements in one move");
        c = {p, c.axes | a, x.dim, y.dim, max};
    }
    if (c.axes.empty()) throw TypingError("a move that goes nowhere");
    demand_innermost(from, to, c.pair);
    return c;
}

Change change(const Program& p, const Op& op) { return change(p.type(p.inputs(op)[0]), p.destination(op)); }

std::set<CollectiveGroup> collective_groups(const Program& p) {
    std::set<CollectiveGroup> groups;
    const Grid& grid = p.grid();
    for (const Op& op : p.ops) {
        if (op.queue != Queue::collective) continue;
        const AxisSet axes = change(p, op).axes;
        std::int64_t ranks = grid.size(axes);
        if (axes.has(Axis::pp)) ranks = ranks / grid.extent(Axis::pp) * static_cast<std::int64_t>(pp_members(grid, p.destination(op).holders).size());
        if (ranks > 1) groups.insert({axes, ranks});
    }
    return groups;
}

Tier message_tier(const Program& p) {
    const auto first = std::find_if(p.ops.begin(), p.ops.end(), moves_between_ranks);
    return first == p.ops.end() ? Tier::device : p.type(p.operands[first->first]).tier;
}

Types redistribute_rule(Tables& tables, const Op&, const Attributes& a, Inputs in) {
    const Placement& to = tables.type(a.types.at(0)).place;
    Types out;
    for (const TensorType& t : in) {  // several tensors may travel in one call: all by the same pair
        const Change c = change(t, to);
        const Change first = change(in[0], to);
        if (c.pair != first.pair || !(c.axes == first.axes)) throw TypingError("tensors of one move go different ways");
        if (c.axes.has(Axis::pp) ? c.pair != Pair::first_keeps && to.holders == Holders::own : to.holders != t.place.holders)
            throw TypingError("a sum over pp must say which coordinates hold it, and nothing else may change that");
        if (!(to.varies == t.place.varies)) throw TypingError("a flat buffer cannot become another one by moving");
        out.push_back(t.placed(to));
    }
    return out;
}

}  // namespace quadrille
