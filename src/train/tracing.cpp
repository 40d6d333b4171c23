#include "train/tracing.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace quadrille {
namespace {

constexpr std::int64_t traced_steps = 10;
constexpr std::int64_t timed_memory_step = 2;  // whose memory is told over time

// Every rank's rows of plain data, on rank 0; elsewhere nothing. Collective.
template <class Row>
std::vector<std::vector<Row>> gather_rows(World& world, const std::vector<Row>& rows) {
    static_assert(std::is_trivially_copyable_v<Row>);
    std::string bytes(rows.size() * sizeof(Row), '\0');
    if (!rows.empty()) std::memcpy(bytes.data(), rows.data(), bytes.size());
    std::vector<std::vector<Row>> all;
    for (std::string& b : world.gather(bytes)) {
        all.emplace_back(b.size() / sizeof(Row));
        if (!b.empty()) std::memcpy(all.back().data(), b.data(), b.size());
        b = std::string();  // gigabytes in a large job: not all of it twice
    }
    return all;
}

// A step's memory by tier and time on this rank's clock: a change happens when the next op of the compute queue begins, else at the end.
std::vector<TracedMemory> memory_over_time(const StepResult& r, std::int64_t rank) {
    std::vector<OpEvent> computed;
    double end = 0;
    for (const OpEvent& e : r.events) {
        if (e.queue == 0) computed.push_back(e);
        end = std::max(end, e.end);
    }
    std::vector<TracedMemory> rows;
    for (std::size_t t = 0; t < tier_count; ++t) {
        auto next = computed.begin();
        for (const BytesInUse& use : r.timeline[t]) {
            while (next != computed.end() && next->op < use.op) ++next;
            rows.push_back({rank, static_cast<std::int64_t>(t), use.op, next == computed.end() ? end : next->begin, use.books});
        }
    }
    return rows;
}

}  // namespace

Tracing::Tracing(Session& session) : s_(session) {
    trace_.queues = {"compute"};
    for (const std::string& axis : s_.wire_axes) trace_.queues.push_back(axis);
    for (const Queue queue : tier_queues) trace_.queues.emplace_back(name_of(queue));
    for (const Program& p : s_.training.programs) {  // every rank names the ops of all coordinates alike
        first_label_.push_back(static_cast<std::int64_t>(trace_.ops.size()));
        if (!s_.config.output.trace) continue;
        for (const Op& op : p.ops) trace_.ops.push_back(label(p, op));
        trace_.ops.emplace_back("end");
    }
}

bool Tracing::has(std::int64_t step) const { return s_.config.output.trace && step - s_.start.point.step <= traced_steps; }

bool Tracing::has_memory(std::int64_t step) const {
    return s_.config.output.trace && step == std::min(s_.start.point.step + timed_memory_step, s_.config.train.steps);
}

void Tracing::keep(const StepResult& r, std::int64_t step) {
    const auto shift = [this](std::int64_t rank) { return s_.world.clock_offset(static_cast<int>(rank)) - start_; };
    const auto first_label = [this](std::int64_t rank) { return first_label_[static_cast<std::size_t>(s_.grid.coordinate(rank)[Axis::pp])]; };
    for (const std::vector<OpEvent>& events : gather_rows(s_.world, r.events)) {
        const auto rank = static_cast<std::int64_t>(trace_.blocks.size()) % s_.world.size();
        TraceBlock block{step, rank, {}};
        for (const OpEvent& e : events) block.events.push_back({e.queue, first_label(rank) + e.op, e.begin + shift(rank), e.end + shift(rank)});
        trace_.blocks.push_back(std::move(block));
    }
    if (!has_memory(step)) return;
    for (const std::vector<TracedMemory>& rows : gather_rows(s_.world, memory_over_time(r, s_.world.rank())))
        for (TracedMemory m : rows) {
            m.op += first_label(m.rank);
            m.time += shift(m.rank);
            trace_.memory.push_back(m);
        }
}

void Tracing::write() const {
    if (s_.config.output.trace) write_trace(s_.config.output.directory, trace_);
}

}  // namespace quadrille
