#include "train/launcher.hpp"

#include "comm/world.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <thread>

namespace quadrille {
namespace {

constexpr std::chrono::seconds time_to_speak{2};

// The first of these variables that is there, as a number; `none` where there is none.
int first_of(std::initializer_list<const char*> names, int none) {
    for (const char* name : names)
        if (const char* value = std::getenv(name)) return std::atoi(value);
    return none;
}

// Of a Slurm step. A batch script is one of a single task, whatever the job has.
int step_ranks() { return first_of({"SLURM_STEP_NUM_TASKS"}, 1); }

int launched_rank() {
    return first_of({"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"}, step_ranks() > 1 ? first_of({"SLURM_PROCID"}, 0) : 0);
}

}  // namespace

// Open MPI's name, then that of MPICH, its relatives and Slurm's PMI, then that of srun, which with PMIx has none of them.
int launched_ranks() { return first_of({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE"}, step_ranks()); }

void complain(const Failure& failure) {
    if (failure.message.empty()) return;
    if (failure.exit == Exit::refused && launched_rank() > 0 && launched_ranks() > 1 && !World::started())
        return std::this_thread::sleep_for(time_to_speak);  // a launcher may end the job once one rank has
    fmt::print(stderr, "quadrille: {}\n", failure.message);
}

}  // namespace quadrille
