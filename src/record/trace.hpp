// The trace: what every queue of every rank did in the traced steps, and what memory was in use over one of them. Plain data and its
// writer; rank 0's, not collective.
#pragma once
#include "record/run_record.hpp"

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

// Bytes in use on a tier of a rank, book by book, from the begin of this op on.
struct TracedMemory {
    std::int64_t rank = 0, tier = 0, op = 0;  // rows of RunRecord::tiers and Trace::ops
    double time = 0;                          // seconds since the run's start on rank 0's clock
    std::array<std::int64_t, RunRecord::books.size()> books{};
};

struct Trace {
    std::vector<std::string> queues, ops;  // names
    std::vector<TraceBlock> blocks;
    std::vector<TracedMemory> memory = {};  // of one step, by rank, tier and time
};

// Replaces `directory`/trace.h5 whole, as the record is replaced: /trace/queues, /trace/ops (names), the columns
// /trace/step, rank, queue, op, begin, end [event], and /memory/tiers, /memory/books (names), the columns /memory/rank, tier, op,
// time [change] and /memory/bytes [change, book]. Throws Error{io_failed}.
void write_trace(const std::filesystem::path& directory, const Trace& trace);

}  // namespace quadrille
