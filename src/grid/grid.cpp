#include "grid/grid.hpp"

#include "base/error.hpp"

namespace quadrille {

std::string_view name_of(Axis a) {
    constexpr std::array<std::string_view, axis_count> names = {"pp", "replica", "shard", "sp", "tp", "tq"};
    return names[static_cast<std::size_t>(a)];
}

std::vector<Axis> AxisSet::list() const {
    std::vector<Axis> out;
    for (const Axis a : all_axes)
        if (has(a)) out.push_back(a);
    return out;
}

std::string AxisSet::text() const {
    std::string out;
    auto say = [&out](std::string_view word) { out += (out.empty() ? "" : "+") + std::string(word); };
    if (contains(data_axes)) say("dp");
    else if (has(Axis::shard)) say("dp_shard");
    else if (has(Axis::replica)) say("dp_replica");
    if (has(Axis::sp)) say("sp");
    if (!(*this & tensor_axes).empty()) say("tp");
    if (has(Axis::pp)) say("pp");
    return out;
}

Grid::Grid(std::array<int, axis_count> extent, std::array<Axis, axis_count> fastest_first) : extent_(extent), order_(fastest_first) {
    AxisSet seen;
    for (const Axis a : order_) seen |= a;
    require(seen.count() == axis_count, "grid: the order must name every axis once");
    for (const int e : extent_) require(e >= 1, "grid: an extent is below 1");
}

Grid Grid::of_user_axes(int dp, int tp, int pp, int sp, int shard, int tq, const std::vector<std::string>& order) {
    require(dp % shard == 0 && tp % tq == 0, "grid: shard must divide dp and tq must divide tp");
    std::vector<Axis> fastest;
    for (const std::string& name : order) {
        if (name == "tp") fastest.insert(fastest.end(), {Axis::tq, Axis::tp});
        if (name == "dp") fastest.insert(fastest.end(), {Axis::shard, Axis::replica});
        if (name == "sp") fastest.push_back(Axis::sp);
        if (name == "pp") fastest.push_back(Axis::pp);
    }
    require(fastest.size() == axis_count, "grid: the order must name dp, tp, pp and sp");
    std::array<Axis, axis_count> a{};
    for (std::size_t i = 0; i < axis_count; ++i) a[i] = fastest[i];
    return Grid({pp, dp / shard, shard, sp, tp / tq, tq}, a);
}

std::int64_t Grid::size(AxisSet axes) const {
    std::int64_t n = 1;
    for (const Axis a : all_axes)
        if (axes.has(a)) n *= extent(a);
    return n;
}

AxisSet Grid::real(AxisSet axes) const {
    AxisSet out;
    for (const Axis a : all_axes)
        if (axes.has(a) && extent(a) > 1) out |= a;
    return out;
}

Coordinate Grid::coordinate(std::int64_t rank) const {
    Coordinate c;
    for (const Axis a : order_) {
        c[a] = static_cast<int>(rank % extent(a));
        rank /= extent(a);
    }
    return c;
}

std::int64_t Grid::rank(const Coordinate& c) const {
    std::int64_t r = 0;
    for (std::size_t i = axis_count; i-- > 0;) r = r * extent(order_[i]) + c[order_[i]];
    return r;
}

std::vector<std::int64_t> Grid::group(const Coordinate& from, AxisSet axes, const std::vector<int>& pp_members) const {
    std::vector<Coordinate> found = {from};
    for (const Axis a : axes.list()) {
        std::vector<Coordinate> next;
        for (Coordinate c : found) {
            if (a == Axis::pp && !pp_members.empty()) {
                for (const int v : pp_members) { c[a] = v; next.push_back(c); }
            } else {
                for (int v = 0; v < extent(a); ++v) { c[a] = v; next.push_back(c); }
            }
        }
        found = std::move(next);
    }
    std::vector<std::int64_t> ranks;
    ranks.reserve(found.size());
    for (const Coordinate& c : found) ranks.push_back(rank(c));
    return ranks;
}

std::int64_t Grid::position(const Coordinate& c, AxisSet axes) const {
    std::int64_t p = 0;
    for (const Axis a : axes.list()) p = p * extent(a) + c[a];
    return p;
}

AxisSet named_axes(const Grid& grid, AxisSet axes) {
    AxisSet named = axes;
    for (const AxisSet word : {data_axes, tensor_axes})
        if (!(axes & word).empty() && axes.contains(grid.real(word))) named |= word;
    return named;
}

std::string wire_name(const Grid& grid, AxisSet axes) { return named_axes(grid, axes).text(); }

}  // namespace quadrille
