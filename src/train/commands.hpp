// The subcommands, each a function that returns the process's exit code. Only `train` and the collectives of `bench` start MPI.
#pragma once
#include <string>
#include <vector>

namespace quadrille {

using Words = std::vector<std::string>;   // of the command line, after the subcommand

int train_command(int argc, char** argv, const Words&);
int plan_command(const Words&);
int bench_command(int argc, char** argv, const Words&);
int inspect_command(const Words&);
std::string usage();

}  // namespace quadrille
