#include "train/launcher.hpp"

#include "base/say.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

namespace quadrille {
namespace {

constexpr std::chrono::seconds time_to_speak{2};

// Of a Slurm step. A batch script is one of a single task, whatever the job has (SLURM_NTASKS).
constexpr const char* slurm_size = "SLURM_STEP_NUM_TASKS";
// Open MPI's name, then that of MPICH, its relatives and Slurm's PMI, then that of srun, which with PMIx has none of them.
constexpr const char* sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE", slurm_size};

// The first of these variables that is there, as a number; `none` where there is none.
int first_of(const std::vector<const char*>& names, int none) {
    for (const char* name : names)
        if (const char* value = std::getenv(name)) return std::atoi(value);
    return none;
}

int launched_rank() {
    return first_of({"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"}, first_of({slurm_size}, 1) > 1 ? first_of({"SLURM_PROCID"}, 0) : 0);
}

}  // namespace

int launched_ranks() { return first_of({std::begin(sizes), std::end(sizes)}, 1); }

void refuse_singletons(const World& world) {
    const int ranks = launched_ranks();
    if (world.size() > 1 || ranks <= 1) return;
    const auto name = std::find_if(std::begin(sizes), std::end(sizes), [](const char* n) { return std::getenv(n) != nullptr; });
    const char* fix = std::getenv(slurm_size) != nullptr
                          ? "give srun the interface that this library was built for, such as --mpi=pmix (`srun --mpi=list` names those it has)"
                          : "start it with the mpirun of that library (jobscripts/launch.sh takes its name in MPIRUN), or build with the launcher's";
    throw Error(Exit::refused,
                fmt::format("the launcher has started {} ranks ({}), but MPI joins this one with no other: each would train alone. This program was "
                            "built with {}, which does not know that launcher: {}", ranks, *name, World::library(), fix));
}

void complain(const Failure& failure) {
    if (failure.message.empty()) return;
    if (failure.exit == Exit::refused && launched_rank() > 0 && launched_ranks() > 1)
        return std::this_thread::sleep_for(time_to_speak);  // a launcher may end the job once one rank has
    say(failure.message);
}

}  // namespace quadrille
