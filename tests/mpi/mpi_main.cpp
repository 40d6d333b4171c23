// The main of a test that runs under mpirun: one World for all its cases, and one verdict for all ranks. A failed check on one
// rank must not leave the others waiting: a case that throws ends the job.
#include "mpi_main.hpp"

#include <cstdio>

namespace quadrille::test {
namespace {
World* the_world = nullptr;  // set by main, for the length of all cases: doctest's cases take no arguments
}
World& world() { return *the_world; }
}  // namespace quadrille::test

int main(int argc, char** argv) {
    quadrille::World world(&argc, &argv);
    quadrille::test::the_world = &world;
    doctest::Context context(argc, argv);
    if (world.rank() != 0) context.setOption("minimal", true);
    const int failed = context.run();
    const bool any = !world.all(failed == 0);
    if (failed != 0) std::fprintf(stderr, "rank %d of %d failed\n", world.rank(), world.size());
    return any ? 1 : 0;
}
