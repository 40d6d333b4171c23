#include "comm/node_grid.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace quadrille {

NodeGrid arrange(std::span<const int> node_of, int me) {
    std::vector<int> numbers;                 // of nodes, as they come
    std::vector<std::vector<int>> on_node;
    for (std::size_t i = 0; i < node_of.size(); ++i) {
        const auto found = static_cast<std::size_t>(std::find(numbers.begin(), numbers.end(), node_of[i]) - numbers.begin());
        if (found == numbers.size()) {
            numbers.push_back(node_of[i]);
            on_node.emplace_back();
        }
        on_node[found].push_back(static_cast<int>(i));
    }
    NodeGrid grid;
    const bool even = std::all_of(on_node.begin(), on_node.end(), [&](const auto& m) { return m.size() == on_node[0].size(); });
    if (!even) {
        grid.nodes = static_cast<int>(node_of.size());
        grid.node = me;
        grid.members.resize(node_of.size());
        std::iota(grid.members.begin(), grid.members.end(), 0);
        return grid;
    }
    grid.nodes = static_cast<int>(on_node.size());
    grid.per_node = static_cast<int>(on_node[0].size());
    for (int a = 0; a < grid.nodes; ++a) {
        for (int b = 0; b < grid.per_node; ++b) {
            const int member = on_node[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)];
            grid.members.push_back(member);
            if (member != me) continue;
            grid.node = a;
            grid.local = b;
        }
    }
    return grid;
}

}  // namespace quadrille
