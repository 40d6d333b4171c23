// The pipeline's order: per pp coordinate, which part of which chunk runs for which microbatch, in turn.
#pragma once
#include "config/config.hpp"

#include <string>
#include <vector>

namespace quadrille {

// backward: both halves, interleaved as differentiate wrote them.
enum class Phase : std::uint8_t { forward, backward, backward_input, backward_weight };

struct Action {
    Phase phase = Phase::forward;
    int chunk = 0, microbatch = 0;
};
using Order = std::vector<Action>;

// One order per pp coordinate; chunk c runs on coordinate c mod pp. Backwards of one chunk run in ascending microbatch order in all
// schedules, and where one coordinate has all chunks a microbatch goes through all of them: the same sums, so the same bits. interleaved
// needs microbatches to be a multiple of pp.
//   gpipe        all forwards, then all backwards (Huang et al. 2019)
//   1f1b         pp-1-r forwards, then one forward and one backward in turn (Narayanan et al. 2019, PipeDream-flush)
//   interleaved  the same over several chunks a coordinate (Narayanan et al. 2021, section 2.2)
//   zero-bubble  ZB-H1: weight gradients lag behind and fill the drain (Qi et al. 2023, figure 3)
std::vector<Order> schedule(Schedule, int pp, int virtual_stages, int microbatches);

// Forwards alone, microbatch by microbatch: evaluation.
std::vector<Order> forward_only(int pp, int virtual_stages, int microbatches);

std::string text(const Order&);  // "0F0 0F1 0B0": chunk, phase (F, B, I, W), microbatch

}  // namespace quadrille
