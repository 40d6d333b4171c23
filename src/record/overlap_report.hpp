// What of the moves between ranks was hidden behind arithmetic, and what that cost the arithmetic, as text. Pure functions of the record. Of a run of
// several steps the first is left out, which pays for beginnings.
#pragma once
#include "record/run_record.hpp"

#include <string>

namespace quadrille {

// Rows axis: seconds under way and exposed, per step and mean over ranks, and the share that was hidden; then how fast arithmetic was beside them.
// Empty where ranks exchange nothing or no step was finished.
std::string overlap_ledger(const RunRecord& record);
// The same in one line, for a run's end.
std::string overlap_line(const RunRecord& record);

}  // namespace quadrille
