// Where ranks stand and how fast they reach each other, on nodes that are pretended.
#include "comm/cpu_place.hpp"
#include "comm/probe.hpp"
#include "mpi_main.hpp"

namespace quadrille::test {

TEST_CASE("rank 0 knows everybody's place, and every rank the same speeds, which never rise with distance") {
    const int size = world().size();
    for (const int nodes : {0, 1, 2, size}) {
        CAPTURE(nodes);
        const Topology t = probe(world(), nodes);
        CHECK(t.places.size() == static_cast<std::size_t>(world().rank() == 0 ? size : 0));
        std::vector<double> speeds;
        for (const LinkSpeed& s : t.speeds) {
            speeds.push_back(s.latency);
            speeds.push_back(s.bandwidth);
        }
        const std::vector<double> all = world().gather(std::span<const double>(speeds));
        for (std::size_t i = 0; i < all.size(); ++i) CHECK(all[i] == speeds[i % speeds.size()]);
        for (std::size_t l = 1; l < t.speeds.size(); ++l) {
            CHECK(t.speeds[l].latency >= t.speeds[l - 1].latency);
            CHECK(t.speeds[l].bandwidth <= t.speeds[l - 1].bandwidth);
        }
        if (size > 1) CHECK(t.speeds[0].latency > 0);
        if (size > 1) CHECK(t.speeds[0].bandwidth > 1e6);
        if (world().rank() != 0 || world().node_size() < size) continue;
        CHECK(t.nodes() == std::min(std::max(1, nodes), size));
        CHECK(t.link(0, size - 1) == (nodes > 1 && size > 1 ? Link::network : t.link(0, size - 1)));
        const CpuPlace mine = cpu_place();
        CHECK(t.places[0].socket == mine.socket);
        CHECK(t.places[0].numa == mine.numa);
    }
}

}  // namespace quadrille::test
