// The data of a run, opened as the input file says: what trains, what is held out, and what there is to say about it.
// Owns the mapping from Config to sources, samples and readers; opens files, makes none. Not collective: every rank opens the
// same files and derives the same order.
#pragma once
#include "config/config.hpp"
#include "data/batch.hpp"
#include "data/mapped_file.hpp"

#include <memory>
#include <string>
#include <vector>

namespace quadrille {

struct Data {
    std::shared_ptr<const BatchReader> training;
    std::shared_ptr<const BatchReader> evaluation;  // null without held-out data
    std::int64_t evaluation_batches = 0;            // global batches of one evaluation: evaluation.batches, or fewer if the set ends
    std::vector<std::string> description;           // for stdout, one line each: files, tokens, samples, epochs, notes
    std::vector<std::string> warnings;              // for stderr
    std::vector<FileMark> files;                    // what was opened: the same on every rank, if they see the same data
};

// Opens and checks everything, for a Config that load_config or parse_resolved made; training data is read from `begin` on. Throws Error{refused}
// with file, field, value and what was expected.
Data open_data(const Config& config, DataPosition begin = {});

}  // namespace quadrille
