// How the members of a group lie on nodes, where every node has as many: member (node, local). Pure.
#pragma once
#include <span>
#include <vector>

namespace quadrille {

struct NodeGrid {
    int nodes = 1, per_node = 1;
    int node = 0, local = 0;    // of this member
    std::vector<int> members;   // member of (a, b) at a·per_node + b; nodes and their members in the group's order

    int member(int a, int b) const { return members[static_cast<std::size_t>(a * per_node + b)]; }
    bool flat() const { return nodes == 1 || per_node == 1; }  // one level alone
};

// node_of: each member's node. Where nodes have different numbers of members there is no such grid: one node per member is returned.
NodeGrid arrange(std::span<const int> node_of, int me);

}  // namespace quadrille
