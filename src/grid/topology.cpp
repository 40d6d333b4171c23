#include "grid/topology.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace quadrille {
namespace {

// The rank after `rank` in its group along `axes`, round: the fastest of them in enum order goes on first.
std::int64_t next_in_group(const Grid& grid, std::int64_t rank, const std::vector<Axis>& axes) {
    Coordinate c = grid.coordinate(rank);
    for (auto a = axes.rbegin(); a != axes.rend(); ++a) {
        c[*a] = (c[*a] + 1) % grid.extent(*a);
        if (c[*a] != 0) break;
    }
    return grid.rank(c);
}

}  // namespace

std::string_view name_of(Link l) {
    constexpr std::array<std::string_view, link_count> names = {"inside a NUMA domain", "inside a socket", "inside a node", "between nodes"};
    return names[static_cast<std::size_t>(l)];
}

Link Topology::link(std::int64_t a, std::int64_t b) const {
    const RankPlace &x = places[static_cast<std::size_t>(a)], &y = places[static_cast<std::size_t>(b)];
    if (x.node != y.node) return Link::network;
    if (x.numa >= 0 && x.numa == y.numa) return Link::numa;
    return x.socket >= 0 && x.socket == y.socket ? Link::socket : Link::node;
}

std::int64_t Topology::nodes() const {
    std::set<int> found;
    for (const RankPlace& p : places) found.insert(p.node);
    return static_cast<std::int64_t>(found.size());
}

void Topology::make_monotone() {
    for (std::size_t l = 1; l < speeds.size(); ++l) {
        speeds[l].latency = std::max(speeds[l].latency, speeds[l - 1].latency);
        speeds[l].bandwidth = std::min(speeds[l].bandwidth, speeds[l - 1].bandwidth);
    }
}

Topology assumed_topology(std::int64_t ranks, std::int64_t ranks_per_node) {
    Topology t;
    t.places.resize(static_cast<std::size_t>(ranks));
    for (std::int64_t r = 0; r < ranks && ranks_per_node > 0; ++r) t.places[static_cast<std::size_t>(r)].node = static_cast<int>(r / ranks_per_node);
    const LinkSpeed inside{1e-6, 10e9};
    t.speeds = {inside, inside, inside, LinkSpeed{3e-6, 3e9}};
    return t;
}

RingSpeed ring_speed(const Grid& grid, AxisSet axes, const Topology& topology) {
    require(static_cast<std::int64_t>(topology.places.size()) == grid.ranks(), "a topology of other ranks than the grid's");
    const std::vector<Axis> along = grid.real(axes).list();
    RingSpeed ring;
    if (along.empty()) return ring;
    std::map<int, std::int64_t> leaving;  // a node: ranks whose next is elsewhere
    for (std::int64_t r = 0; r < grid.ranks(); ++r) {
        const Link link = topology.link(r, next_in_group(grid, r, along));
        ring.distance += static_cast<double>(link) / static_cast<double>(grid.ranks());
        ring.farthest = std::max(ring.farthest, link);
        ring.latency = std::max(ring.latency, topology.speed(link).latency);
        const std::int64_t sharers = link == Link::network ? ++leaving[topology.places[static_cast<std::size_t>(r)].node] : 1;
        ring.seconds_per_byte = std::max(ring.seconds_per_byte, static_cast<double>(sharers) / topology.speed(link).bandwidth);
    }
    return ring;
}

}  // namespace quadrille
