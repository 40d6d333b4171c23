// From a resolved input to the programs of one training or evaluation step. compile.cpp lists the passes in order: read it first.
#pragma once
#include "compile/lay_out.hpp"
#include "compile/schedule.hpp"
#include "config/config.hpp"

namespace quadrille {

enum class Purpose : std::uint8_t { training, evaluation };

struct Compiled {
    std::shared_ptr<Tables> tables;
    std::vector<Order> orders;       // of the pipeline, one per pp coordinate
    std::vector<Program> programs;   // one per pp coordinate: all ranks that share it run the same text
};

// Pure: no MPI, no device. Throws TypingError where the model does not fit the grid (the input's checks should have said so before).
Compiled compile(const Config&, Purpose, const Workspace&);

// The same step for one rank, for comparison of meaning.
Config serial(Config);

}  // namespace quadrille
