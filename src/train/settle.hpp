// What a run's input leaves to the machine it runs on, measured and chosen before anything is compiled that runs.
#pragma once
#include "comm/measured.hpp"
#include "comm/world.hpp"
#include "config/config.hpp"
#include "plan/choices.hpp"

namespace quadrille {

// Measures what the open choices ask for, some tens of milliseconds, and makes them on rank 0: the same config on all ranks. The choices made, with
// their reasons, are rank 0's. Collective over all ranks; SharedError.
Choices settle(const World&, const Config&);

// The fastest all-reduces of a table of measured collectives.
std::vector<AllReduceTime> fastest_all_reduces(const std::vector<MeasuredTime>&);

}  // namespace quadrille
