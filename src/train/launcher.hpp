// The job around this process where no World is there: before MPI is started, or because it could not be.
#pragma once
#include "base/error.hpp"

namespace quadrille {

// Ranks that a launcher has started, by this process's environment; 1 where none is known.
int launched_ranks();

// Prints a failure that has left every subcommand. What is refused before MPI is started (bad usage), all ranks refuse alike, and the first one
// says: that rank by the launcher's variables, since MPI is for those who train and would wait for ranks that never come. The others give it
// two seconds before they return.
void complain(const Failure&);

}  // namespace quadrille
