// Reads a run record back. Damage is found, not survived: the file's checksum is checked before anything is read.
#pragma once
#include "record/run_record.hpp"

#include <filesystem>

namespace quadrille {

// What a record says of its making, beside the run itself.
struct RecordOrigin {
    std::string schema, version, git_commit;
};

// Throws Error{io_failed} naming file and reason: missing, not HDF5, truncated, a checksum that fails, a table of the wrong
// shape.
RunRecord read_record(const std::filesystem::path& file, RecordOrigin* origin = nullptr);

}  // namespace quadrille
