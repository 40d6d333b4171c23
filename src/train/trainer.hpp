// The training loop: load, run the program, record, maybe evaluate, stop.
#pragma once
#include "record/console.hpp"
#include "record/record_writer.hpp"
#include "record/trace.hpp"
#include "train/loss_scale.hpp"
#include "train/session.hpp"

namespace quadrille {

class Trainer {
  public:
    explicit Trainer(Session&);

    // Runs all steps. Collective over all ranks. Returns done, or diverged where the policy is to stop. The record is written before
    // the first step, at log intervals and at the end.
    Exit run();
    // Gathers what is left and writes the record a last time, with this exit code. Collective over all ranks; rank 0 writes.
    void close(Exit);

  private:
    // A step's row, this rank's times and what it knows of its own, kept until the next log interval gathers them.
    struct Pending { StepRow row; Times times; std::vector<double> moves; std::uint64_t hash; double residual2; };

    StepResult train_step(std::int64_t step, const StepBatch&, double lr);
    void note_memory(const StepResult&);
    bool evaluate(std::int64_t step);      // false: the loss is not finite, and the policy is to stop
    bool tells_memory(std::int64_t step) const;
    bool diverged(const StepResult&, std::int64_t step);
    bool overflowed(std::int64_t step);    // of gradients, in fp16. Whether the run must end
    double scale() const { return loss_scale_ ? loss_scale_->value() : 1.0; }
    void keep_trace(const StepResult&, std::int64_t step);
    void flush();
    void write_record();

    Session& s_;
    Console console_;
    RecordWriter writer_;
    Trace trace_;
    std::vector<Pending> pending_;
    const double start_ = now();   // of the run, on this rank's clock: the trace's zero
    bool warned_of_no_tokens_ = false;
    bool stepped_ = false;         // in this process
    std::int64_t updates_ = 0;     // optimizer steps made: skipped ones do not count
    std::array<BytesInUse, tier_count> measured_{};
    std::optional<LossScale> loss_scale_;  // in fp16
    std::vector<std::int64_t> first_label_;  // of each pp coordinate's ops in trace_.ops
};

}  // namespace quadrille
