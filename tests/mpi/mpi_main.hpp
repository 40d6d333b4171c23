// What a test that runs under mpirun has beside doctest: one World for all its cases. mpi_main.cpp is its main.
#pragma once
#include <doctest.h>

#include "comm/world.hpp"

namespace quadrille::test {

World& world();

}  // namespace quadrille::test
