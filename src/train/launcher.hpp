// The job around this process by its launcher's word: where no World is there, before MPI is started or because it could not be, and where
// the World is smaller than that.
#pragma once
#include "base/error.hpp"
#include "comm/world.hpp"

namespace quadrille {

// Ranks that a launcher has started, by this process's environment; 1 where none is known.
int launched_ranks();

// Error{refused} with the likely fix where the launcher has started several ranks and MPI takes each of them for a job of its own, as it does
// when launcher and library do not know each other.
void refuse_singletons(const World&);

// Prints a failure that has left every subcommand. What is refused before MPI is started (bad usage) or since it does not join the ranks, all
// refuse alike, and the first one says: that rank by the launcher's variables, since MPI is for those who train and would wait for ranks
// that never come. The others give it two seconds before they return.
void complain(const Failure&);

}  // namespace quadrille
