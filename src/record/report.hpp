// A run record as text: the two ledgers and the summary that ends a run and that `quadrille inspect` prints. Pure functions of
// the record.
#pragma once
#include "record/run_record.hpp"

#include <filesystem>
#include <string>

namespace quadrille {

// Rows tier and book, predicted and measured bytes of the rank whose tier peaks highest, and on how many ranks the two are equal.
std::string memory_ledger(const RunRecord& record);

// Rows category: seconds summed over steps, mean over ranks and of the rank with most, and per cent of the steps' wall clock.
std::string time_ledger(const RunRecord& record);

// Bytes per axis and step, predicted and sent, summed over ranks.
std::string wire_ledger(const RunRecord& record);

// The model of a resolved input, one line.
std::string model_line(const std::string& config_yaml);

// Everything above with grid, losses and speed: the end of a run.
std::string run_summary(const RunRecord& record);

// The summary of the record at `path`, a run.h5 or the directory that holds one (of several, the newest); or of a trace.h5. Needs no MPI.
// Throws Error{io_failed} for a
// damaged file and Error{refused} where there is none.
std::string inspect_record(const std::filesystem::path& path);

}  // namespace quadrille
