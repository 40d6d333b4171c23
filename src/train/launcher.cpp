#include "train/launcher.hpp"

#include "comm/world.hpp"

#include <cstdio>
#include <cstdlib>

namespace quadrille {

// Open MPI's name, then that of MPICH, its relatives and Slurm's PMI. Not Slurm's own: a batch script has it too, and is alone.
int launched_ranks() {
    for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE"})
        if (const char* size = std::getenv(name)) return std::atoi(size);
    return 1;
}

void complain(int argc, char** argv, const Failure& failure) {
    const auto say = [&] {
        if (!failure.message.empty()) fmt::print(stderr, "quadrille: {}\n", failure.message);
    };
    if (failure.exit != Exit::refused || launched_ranks() <= 1 || World::started()) return say();
    const World world(&argc, &argv);
    if (world.rank() == 0) say();
}

}  // namespace quadrille
