// The records of one output directory, as its runs follow each other: run.h5, then run-2.h5 and so on, each of which goes on, on another grid, from
// the one before it. Owns their names, and what a run that goes on from a checkpoint takes over of the newest. Rank 0's; reads, changes no file.
#pragma once
#include "record/run_record.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace quadrille {

// "run.h5" of 1, "run-2.h5" of 2.
std::string record_name(int number);

// Of the directory's records, the first number to the newest; empty where there is none.
std::vector<int> record_numbers(const std::filesystem::path& directory);

// The newest record; DIRECTORY/run.h5 where there is none.
std::filesystem::path newest_record(const std::filesystem::path& directory);

// The record that a run writes.
struct RecordPlace {
    std::string name = "run.h5";
    std::string note;  // a sentence for the user, where a former record matters
};

// The place of `record`, a run's that goes on after step `step` with this checkpoint. On the grid of the directory's newest record, if that tells of
// the step: the same file, and `record` takes its start and its rows up to the step. Else a new file, and `record.continues` says what it follows.
RecordPlace continue_record(RunRecord& record, const std::filesystem::path& directory, std::int64_t step, const std::string& checkpoint);

}  // namespace quadrille
