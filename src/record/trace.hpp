// The trace: what every queue of every rank did in the traced steps. Plain data and its writer; rank 0's, not collective.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace quadrille {

// One op on one queue. begin, end: seconds since the run's start on rank 0's clock.
struct TraceEvent {
    std::int64_t queue = 0, op = 0;  // rows of Trace::queues and Trace::ops
    double begin = 0, end = 0;
};

// The events of one rank in one step.
struct TraceBlock {
    std::int64_t step = 0, rank = 0;
    std::vector<TraceEvent> events;
};

struct Trace {
    std::vector<std::string> queues, ops;  // names
    std::vector<TraceBlock> blocks;
};

// Replaces `directory`/trace.h5 whole, as the record is replaced: /trace/queues, /trace/ops (names) and the columns
// /trace/step, rank, queue, op, begin, end [event]. Throws Error{io_failed}.
void write_trace(const std::filesystem::path& directory, const Trace& trace);

}  // namespace quadrille
