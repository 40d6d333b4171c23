// The training loop: load, run the program, record, maybe save, evaluate, stop.
#pragma once
#include "record/console.hpp"
#include "record/record_writer.hpp"
#include "train/loss_scale.hpp"
#include "train/saves.hpp"
#include "train/session.hpp"
#include "train/stop.hpp"
#include "train/tracing.hpp"

namespace quadrille {

class Trainer {
  public:
    // `begun`: when the process began, on now(). Collective over all ranks.
    Trainer(Session&, double begun);

    // Runs all steps that are left. Collective over all ranks. Returns done, diverged where the policy is to stop, or stopped, after saving, where a
    // signal or the end of the time asks for that. The record is written before the first step, at log intervals, before each checkpoint and at the
    // end.
    Exit run();
    // Gathers what is left and writes the record a last time, with this exit code. Collective over all ranks; rank 0 writes.
    void close(Exit);

  private:
    // A step's row, this rank's times and what it knows of its own, kept until the next log interval gathers them.
    struct Pending { StepRow row; Times times; std::vector<double> moves; std::uint64_t hash; double residual2; };

    void require_time();
    bool step(std::int64_t step, Loader&);  // false: it has diverged, and the policy is to stop
    std::optional<Exit> between_steps(std::int64_t step);  // after it: what may stand before the next one. The run's end, if this is it
    StepResult train_step(std::int64_t step, const StepBatch&, double lr);
    void note_first_step(const StepResult&);
    void note_memory(const StepResult&);
    bool evaluates(std::int64_t step) const;
    bool evaluate(std::int64_t step);      // false: the loss is not finite, and the policy is to stop. Ends early where the ranks stop
    bool tell_evaluation(std::int64_t step, double loss, double tokens, double seconds);
    void save(std::int64_t step, bool must);
    Exit stop(std::int64_t step);
    // Seconds from now by which the ranks can have stopped, if they go on for so many more steps, or batches of an evaluation.
    double needed(int more) const { return more * slowest_ + saves_.seconds_needed(stop_.seconds_left()); }
    TrainingPoint point(std::int64_t step) const;
    bool diverged(const StepResult&, std::int64_t step);
    bool overflowed(std::int64_t step);    // of gradients, in fp16. Whether the run must end
    double scale() const { return loss_scale_ ? loss_scale_->value() : 1.0; }
    void flush(bool must_write);
    void write_record();

    Session& s_;
    Console console_;
    RecordWriter writer_;
    Tracing tracing_;
    Saves saves_;
    Stop stop_;
    std::vector<Pending> pending_;
    const std::int64_t first_;     // the step that the run begins after
    double begin_ = 0;             // of the step that comes next
    double slowest_ = 0;           // step so far, or batch of an evaluation, in seconds
    bool warned_of_no_tokens_ = false;
    bool stepped_;                 // in this process, or the one that it goes on from: gradients that are stale are of that step
    std::int64_t updates_;         // optimizer steps made: skipped ones do not count
    std::int64_t evaluated_ = 0;   // the last step that an evaluation followed
    std::array<BytesInUse, tier_count> measured_{};
    std::optional<LossScale> loss_scale_;  // in fp16
};

}  // namespace quadrille
