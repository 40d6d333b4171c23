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
int export_command(const Words&);
int import_command(const Words&);

std::string usage();                               // of the program
std::string usage(const std::string& command);     // of one subcommand: its form, and what it does. Empty for no subcommand
std::string form(const std::string& command);      // its form alone: "usage: quadrille inspect PATH"

}  // namespace quadrille
