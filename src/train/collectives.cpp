#include "train/collectives.hpp"

#include "base/format.hpp"
#include "comm/agree.hpp"
#include "config/names.hpp"
#include "ir/table.hpp"
#include "runtime/moves.hpp"

#include <fmt/ranges.h>

#include <set>
#include <utility>

namespace quadrille {
namespace {

std::string_view name_of(Algorithm a) {
    switch (a) {
        case Algorithm::automatic: return "auto";
        case Algorithm::ring: return "ring";
        case Algorithm::doubling: return "doubling";
        case Algorithm::shared: return "shared";
        case Algorithm::hierarchical: return "hierarchical";
        case Algorithm::native: return "native";
    }
    return "";
}

std::string reason(const Service& s) {
    switch (s.instead) {
        case Instead::as_asked: break;
        case Instead::one_node: return "its ranks are on one node";
        case Instead::several_nodes: return "its ranks are on several nodes";
        case Instead::uneven_nodes: return "its ranks are not several, and as many, on each of its nodes";
        case Instead::no_room:
            return fmt::format("it takes {} of shared memory of each rank, and /dev/shm has {} left for one", format_bytes(s.wanted),
                               format_bytes(s.room));
    }
    return "";
}

// This rank's groups, and the axes that they go over.
std::set<std::pair<std::string, int>> groups_of(Engine& engine, std::span<const Program* const> programs, const Coordinate& at) {
    std::set<std::pair<std::string, int>> found;
    for (const Program* p : programs) {
        for (const Op& op : p->ops) {
            if (op.queue != Queue::collective) continue;
            const std::vector<int> members = members_of(*p, op, at);
            if (members.size() > 1) found.insert({wire_name(p->grid(), axes_of(*p, op)), engine.group(members)});
        }
    }
    return found;
}

}  // namespace

std::string sentence(const std::string& axes, const Service& s) {
    return s.instead == Instead::as_asked ? "" : fmt::format("over {}: {}, since {}", axes, name_of(s.algorithm), reason(s));
}

CollectivesTold tell_collectives(const World& world, Engine& engine, std::span<const Program* const> programs, const Coordinate& at,
                                 CollectiveAlgorithm asked) {
    CollectivesTold told;
    std::string mine;
    bool room = true, estimated = false;
    for (const auto& [axes, group] : groups_of(engine, programs, at)) {
        const Service& service = engine.service(group);
        room = room && service.instead != Instead::no_room;
        estimated = estimated || service.algorithm == Algorithm::native || service.algorithm == Algorithm::hierarchical;
        const bool expected = asked == CollectiveAlgorithm::automatic && service.instead == Instead::several_nodes;
        if (const std::string said = expected ? "" : sentence(axes, service); !said.empty()) mine += said + "\n";
    }
    told.wire_estimated = !world.all(!estimated);
    std::set<std::string> distinct;
    for (const std::string& of_rank : world.gather(mine))
        for (std::size_t at_line = 0, end = 0; (end = of_rank.find('\n', at_line)) != std::string::npos; at_line = end + 1)
            distinct.insert(of_rank.substr(at_line, end - at_line));
    const std::string text = fmt::format("comm.algorithm {}: {}", spelling(asked), fmt::join(distinct, "; "));
    room = world.all(room);
    if (!room && asked != CollectiveAlgorithm::automatic)
        on_first_rank(world, [&]() -> std::string { throw Error(Exit::no_memory, text); });
    if (!distinct.empty()) (room ? told.notes : told.warnings).push_back(text);
    return told;
}

}  // namespace quadrille
