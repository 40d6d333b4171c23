// What a run's input leaves to the machine it runs on, measured and chosen before anything is compiled that runs.
#pragma once
#include "comm/measured.hpp"
#include "comm/world.hpp"
#include "config/config.hpp"
#include "plan/choices.hpp"

namespace quadrille {

// Makes the open choices: the same config on all ranks. Where the run goes on from one whose resolved input was `former` (else ""), and on the same
// grid, that one's stand: another order of ranks or size would be another run. Otherwise measures what they ask for, some tens of milliseconds, and
// rank 0 chooses. The choices made, with their reasons, are rank 0's. Collective over all ranks; SharedError.
Choices settle(const World&, const Config&, const std::string& former);

// The fastest all-reduces of a table of measured collectives.
std::vector<AllReduceTime> fastest_all_reduces(const std::vector<MeasuredTime>&);

}  // namespace quadrille
