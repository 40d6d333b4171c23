// The job around this process where no World is there: before MPI is started, or because it could not be.
#pragma once
#include "base/error.hpp"

namespace quadrille {

// Ranks that a launcher has started, by this process's environment; 1 where none is known.
int launched_ranks();

// Prints a failure that has left every subcommand. What is refused before MPI is started (bad usage), all ranks refuse alike, and the job says
// once: MPI is started for it, which alone knows the first rank and keeps the launcher from ending it before it has spoken.
void complain(int argc, char** argv, const Failure&);

}  // namespace quadrille
