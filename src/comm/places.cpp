// What a group is given when it is made: its algorithm, two levels of communicators where it sums in those, and two places for moves.
#include <algorithm>

#include "comm/engine_state.hpp"
#include "comm/evidence_pages.hpp"

namespace quadrille {

// A pretended node is a part of a real one.
int Engine::State::node(int rank) const {
    const std::int64_t nodes = std::max(1, options.pretend_nodes), pretended = rank * nodes / world.size();
    return static_cast<int>(world.pages().node_of(rank) * nodes + pretended);
}

// What is asked, where the group's nodes allow it.
void Engine::State::choose_algorithm(Group& group) const {
    const bool levels = options.algorithm == Algorithm::hierarchical;
    Service& service = group.service;
    service.algorithm = options.algorithm;
    if (!shares_memory(options.algorithm)) return;
    std::vector<int> nodes;
    for (const int r : group.ranks) nodes.push_back(node(r));
    const NodeGrid& grid = group.levels.grid = arrange(nodes, group.me);
    const bool one_node = std::all_of(nodes.begin(), nodes.end(), [&](int n) { return n == nodes[0]; });
    if (one_node && levels) service = {Algorithm::shared, Instead::one_node};
    else if (!one_node && !levels) service = {Algorithm::ring, Instead::several_nodes};
    else if (!one_node && grid.flat()) service = {Algorithm::ring, Instead::uneven_nodes};
}

// Windows are taken as long as each member's share of the room lasts: the ranks of a node take theirs at the same time, so none may count on what
// another might leave. Collective over the group.
void Engine::State::agree_on_room(Group& group, std::int64_t bytes) {
    if (!shares_memory(group.service.algorithm)) return;
    group.service.wanted = SharedMemory::taken(bytes);
    mpi_check(MPI_Allreduce(&shared_left, &group.service.room, 1, MPI_INT64_T, MPI_MIN, group.comm));
    if (group.service.wanted <= group.service.room) shared_left -= group.service.wanted;
    else group.service.algorithm = Algorithm::ring, group.service.instead = Instead::no_room;
}

// Collective over the group.
void Engine::State::open_levels(Group& group) {
    const NodeGrid& grid = group.levels.grid;
    mpi_check(MPI_Comm_split(group.comm, grid.node, grid.local, &group.levels.within));
    mpi_check(MPI_Comm_split(group.comm, grid.local, grid.node, &group.levels.across));
    for (const MPI_Comm comm : {group.levels.within, group.levels.across}) mpi_check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
}

// So many bytes for a group whose memory is this rank's own. Staging is given for all groups or for none.
std::byte* Engine::State::take_staging(Group& group) {
    const std::int64_t bytes = group.staging_bytes;
    if (options.staging.empty()) {
        group.own_staging = Staging(bytes);
        return group.own_staging.data();
    }
    const auto given = static_cast<std::int64_t>(options.staging.size());
    require(staging_taken + bytes <= given, "the engine was given staging for fewer groups");
    std::byte* at = options.staging.data() + staging_taken;
    staging_taken += bytes;
    return at;
}

// Collective over the group. The window is made last: whoever fails before it has nothing that the others must meet to give back.
void Engine::State::open_places(Group& group) {
    const std::int64_t bytes = Work::place_bytes(options);
    group.staging_bytes = Engine::staging_bytes(options);
    choose_algorithm(group);
    agree_on_room(group, SharedWindow::part_bytes(active_per_group, bytes));
    const bool levels = group.service.algorithm == Algorithm::hierarchical, native = group.service.algorithm == Algorithm::native;
    if (levels) open_levels(group);
    const MPI_Comm within = levels ? group.levels.within : group.comm;
    if (shares_memory(group.service.algorithm)) group.window = std::make_unique<SharedWindow>(within, active_per_group, bytes);
    std::byte* staging = group.window ? nullptr : take_staging(group);
    for (int k = 0; k < active_per_group; ++k) {
        Place& place = group.places[static_cast<std::size_t>(k)];
        if (group.window) {
            place.shared = group.window->place(k);
            place.shared.bytes = Work::staging_bytes(options.segment_bytes);
        }
        std::byte* at = group.window ? place.shared.parts[static_cast<std::size_t>(group.levels.grid.local)].data : staging + k * bytes;
        place.staging = {at, static_cast<std::size_t>(bytes)};
        if (!native) continue;
        mpi_check(MPI_Comm_dup(group.comm, &place.collectives));
        mpi_check(MPI_Comm_set_errhandler(place.collectives, MPI_ERRORS_RETURN));
    }
}

}  // namespace quadrille
