#include "record/trace.hpp"

#include "record/hdf5_image.hpp"
#include "record/replace_file.hpp"

namespace quadrille {
namespace {

void write_memory(Hdf5ImageWriter& file, const std::vector<TracedMemory>& memory) {
    std::vector<std::int64_t> rank, tier, op, bytes;
    std::vector<double> time;
    for (const TracedMemory& m : memory) {
        rank.push_back(m.rank);
        tier.push_back(m.tier);
        op.push_back(m.op);
        time.push_back(m.time);
        bytes.insert(bytes.end(), m.books.begin(), m.books.end());
    }
    const std::vector<hsize_t> dims = {memory.size()};
    file.group("/memory");
    file.dataset("/memory/tiers", {RunRecord::tiers.begin(), RunRecord::tiers.end()}, {"name", "[tier] where bytes live"});
    file.dataset("/memory/books", {RunRecord::books.begin(), RunRecord::books.end()}, {"name", "[book] what bytes are for"});
    file.dataset("/memory/rank", dims, rank, {"1", "[change] the rank whose memory it is"});
    file.dataset("/memory/tier", dims, tier, {"1", "[change] row of /memory/tiers"});
    file.dataset("/memory/op", dims, op, {"1", "[change] row of /trace/ops: the op before which it happens"});
    file.dataset("/memory/time", dims, time, {"s", "[change] seconds since the run's start on rank 0's clock"});
    file.dataset("/memory/bytes", {memory.size(), RunRecord::books.size()}, bytes, {"byte", "[change, book] bytes in use from there on, measured"});
}

}  // namespace

void write_trace(const std::filesystem::path& directory, const Trace& trace) {
    std::vector<std::int64_t> step, rank, queue, op;
    std::vector<double> begin, end;
    for (const TraceBlock& block : trace.blocks)
        for (const TraceEvent& event : block.events) {
            step.push_back(block.step);
            rank.push_back(block.rank);
            queue.push_back(event.queue);
            op.push_back(event.op);
            begin.push_back(event.begin);
            end.push_back(event.end);
        }
    const std::filesystem::path path = directory / "trace.h5";
    const std::vector<hsize_t> dims = {step.size()};
    Hdf5ImageWriter file(path.string());
    file.attribute("/", "schema", "quadrille-trace-1");
    file.group("/trace");
    file.dataset("/trace/queues", trace.queues, {"name", "[queue] names of the queues"});
    file.dataset("/trace/ops", trace.ops, {"name", "[op] names of the ops"});
    file.dataset("/trace/step", dims, step, {"1", "[event] the optimizer step it belongs to"});
    file.dataset("/trace/rank", dims, rank, {"1", "[event] the rank it ran on"});
    file.dataset("/trace/queue", dims, queue, {"1", "[event] row of /trace/queues"});
    file.dataset("/trace/op", dims, op, {"1", "[event] row of /trace/ops"});
    file.dataset("/trace/begin", dims, begin, {"s", "[event] begin, seconds since the run's start on rank 0's clock"});
    file.dataset("/trace/end", dims, end, {"s", "[event] end, seconds since the run's start on rank 0's clock"});
    write_memory(file, trace.memory);
    replace_file(path, file.finish());
}

}  // namespace quadrille
