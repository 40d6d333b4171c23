// How fast ranks reach each other, by what they have in common: plain data that somebody has measured (comm/probe.hpp) or assumes, and arithmetic
// on rings. Pure.
#pragma once
#include "grid/grid.hpp"

namespace quadrille {

// What two ranks have in common at least, nearest first; `network`: not even the node.
enum class Link : std::uint8_t { numa, socket, node, network };
constexpr int link_count = 4;
std::string_view name_of(Link);

struct LinkSpeed {
    double latency = 0;    // seconds, of a small message
    double bandwidth = 1;  // bytes per second, of a large one between two ranks alone
};

// Where a rank runs: equal numbers, the same thing. -1: on several, or unknown.
struct RankPlace {
    int node = 0, socket = -1, numa = -1;
};

struct Topology {
    std::vector<RankPlace> places;              // by rank
    std::array<LinkSpeed, link_count> speeds{};  // by Link; of a link that no two ranks have, any

    Link link(std::int64_t a, std::int64_t b) const;
    const LinkSpeed& speed(Link l) const { return speeds[static_cast<std::size_t>(l)]; }
    std::int64_t nodes() const;
    // A farther link is never the faster one: what measurements say otherwise is noise.
    void make_monotone();
};

// Nodes of so many neighbouring ranks (0: one node), one socket each, for a plan, which knows no machine. The speeds are those of a common cluster:
// 1 us and 10 GB/s inside a node, 3 us and 3 GB/s between nodes.
Topology assumed_topology(std::int64_t ranks, std::int64_t ranks_per_node);

// The ring of each group along a set of axes, all groups at work together, as one rank meets it at worst.
struct RingSpeed {
    double latency = 0;           // seconds of one hop
    double seconds_per_byte = 0;  // that every rank sends to its next: ranks that leave a node at once share its way out
    Link farthest = Link::numa;
    double distance = 0;          // mean over the ranks of the link to the next, by its number
};
RingSpeed ring_speed(const Grid&, AxisSet axes, const Topology&);

}  // namespace quadrille
