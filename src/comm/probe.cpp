#include "comm/probe.hpp"

#include "comm/cpu_place.hpp"
#include "comm/evidence_pages.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <optional>
#include <thread>
#include <tuple>

namespace quadrille {
namespace {

constexpr int tag = 3;
constexpr std::size_t large_bytes = 1 << 20;
constexpr int small_trips = 100, large_trips = 8;
constexpr double most_seconds = 0.02;  // of one kind of trip: ranks that share a core are slow

struct Pair { int first = -1, second = -1; };  // -1: there is none

// A pretended node is a part of a real one, as the engine cuts it.
int node_of(const World& world, int rank, int pretend_nodes) {
    const std::int64_t nodes = std::max(1, pretend_nodes), pretended = rank * nodes / world.size();
    return static_cast<int>(world.pages().node_of(rank) * nodes + pretended);
}

// Rank 0's: all ranks' places.
std::vector<RankPlace> places(const World& world, int pretend_nodes) {
    const CpuPlace mine = cpu_place();
    const std::array<std::int64_t, 2> told = {mine.socket, mine.numa};
    const std::vector<std::int64_t> all = world.gather(std::span<const std::int64_t>(told));
    std::vector<RankPlace> out;
    for (std::size_t r = 0; r < all.size() / 2; ++r)
        out.push_back({node_of(world, static_cast<int>(r), pretend_nodes), static_cast<int>(all[2 * r]), static_cast<int>(all[2 * r + 1])});
    return out;
}

// The first two ranks that have this link: the first rank of a place beside the first that shares no more with it.
Pair pair_with(const Topology& t, Link link) {
    std::map<std::tuple<int, int, int>, int> first;
    for (int r = 0; r < static_cast<int>(t.places.size()); ++r) {
        const RankPlace& p = t.places[static_cast<std::size_t>(r)];
        const int socket = link <= Link::socket ? p.socket : -1, numa = link == Link::numa ? p.numa : -1;
        const auto [at, fresh] = first.try_emplace(link == Link::network ? std::tuple(0, -1, -1) : std::tuple(p.node, socket, numa), r);
        if (!fresh && t.link(at->second, r) == link) return {at->second, r};
    }
    return {};
}

void go(const World& world, std::vector<char>& buffer, std::size_t bytes, int peer) {
    mpi_check(MPI_Send(buffer.data(), static_cast<int>(bytes), MPI_CHAR, peer, tag, world.comm()));
}
void come(const World& world, std::vector<char>& buffer, std::size_t bytes, int peer) {
    mpi_check(MPI_Recv(buffer.data(), static_cast<int>(bytes), MPI_CHAR, peer, tag, world.comm(), MPI_STATUS_IGNORE));
}

// One way's seconds of the best round trip, on the first of the two, who says when it is enough: by an empty message in place of the next.
double best_trip(const World& world, Pair pair, std::size_t bytes, int most) {
    std::vector<char> buffer(bytes);
    double best = std::numeric_limits<double>::infinity();
    if (world.rank() == pair.second) {
        for (;;) {
            MPI_Status status;
            mpi_check(MPI_Recv(buffer.data(), static_cast<int>(bytes), MPI_CHAR, pair.first, tag, world.comm(), &status));
            int arrived = 0;
            mpi_check(MPI_Get_count(&status, MPI_CHAR, &arrived));
            if (arrived == 0) return best;
            go(world, buffer, bytes, pair.first);
        }
    }
    const double begin = now();
    for (int k = -1; k < most && (k < 2 || now() - begin < most_seconds); ++k) {  // the first is not counted
        const double from = now();
        go(world, buffer, bytes, pair.second);
        come(world, buffer, bytes, pair.second);
        if (k >= 0) best = std::min(best, (now() - from) / 2);
    }
    go(world, buffer, 0, pair.second);
    return best;
}

// Sleeps until all have come: those who spin would hold up the two who measure, where ranks share cores.
void meet(const World& world) {
    MPI_Request request = MPI_REQUEST_NULL;
    mpi_check(MPI_Ibarrier(world.comm(), &request));
    for (int done = 0; !done;) {
        mpi_check(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
        if (!done) std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
}

LinkSpeed measure(const World& world, Pair pair) {
    std::array<double, 2> found = {0, 0};
    if (world.rank() == pair.first || world.rank() == pair.second) {
        const double small = best_trip(world, pair, 8, small_trips), large = best_trip(world, pair, large_bytes, large_trips);
        if (world.rank() == pair.first) {
            found = {small, static_cast<double>(large_bytes) / std::max(large - small, 1e-9)};
        }
    }
    meet(world);
    world.broadcast(found, pair.first);
    return {found[0], found[1]};
}

}  // namespace

Topology probe(const World& world, int pretend_nodes) {
    Topology t;
    t.places = places(world, pretend_nodes);
    std::array<double, std::size_t{2} * link_count> pairs{};
    for (int l = 0; l < link_count && world.rank() == 0; ++l) {
        const Pair pair = pair_with(t, static_cast<Link>(l));
        pairs[static_cast<std::size_t>(2 * l)] = pair.first;
        pairs[static_cast<std::size_t>(2 * l + 1)] = pair.second;
    }
    world.broadcast(pairs, 0);
    std::optional<LinkSpeed> nearer;
    for (std::size_t l = 0; l < link_count; ++l) {
        const Pair pair{static_cast<int>(pairs[2 * l]), static_cast<int>(pairs[2 * l + 1])};
        if (pair.first >= 0) nearer = measure(world, pair);
        if (nearer) t.speeds[l] = *nearer;
    }
    for (std::size_t l = link_count - 1; l-- > 0;)  // links that no two ranks have, below the nearest that some have
        if (t.speeds[l].latency == 0) t.speeds[l] = t.speeds[l + 1];
    t.make_monotone();
    return t;
}

}  // namespace quadrille
