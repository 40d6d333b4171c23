// What a traced run keeps of its first steps: gathers every rank's events and memory over time on rank 0, on its clock. What a trace is, and how it
// is written, record/trace.hpp says.
#pragma once
#include "record/trace.hpp"
#include "runtime/step.hpp"
#include "train/session.hpp"

namespace quadrille {

class Tracing {
  public:
    // Of the run that begins now, if its input asks for a trace. The session must outlive it.
    explicit Tracing(Session&);

    // Whether a step is traced: the first ten that this run makes. Whether it also tells of memory over time: the second, for the first pays for
    // beginnings; or the only one.
    bool has(std::int64_t step) const;
    bool has_memory(std::int64_t step) const;
    // Of a step that has it. Collective over all ranks.
    void keep(const StepResult&, std::int64_t step);
    // Rank 0's, at the end; nothing where nothing is traced.
    void write() const;

  private:
    Session& s_;
    const double start_ = now();  // of the run, on this rank's clock: the trace's zero
    Trace trace_;
    std::vector<std::int64_t> first_label_;  // of each pp coordinate's ops in trace_.ops
};

}  // namespace quadrille
