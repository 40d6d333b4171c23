// The checkpoints of a run: when one is due, how long one takes, and what is said of it. How one is written is the room checkpoint's.
#pragma once
#include "checkpoint/saver.hpp"
#include "record/console.hpp"
#include "train/session.hpp"

namespace quadrille {

// Seconds that a stop takes: `slowest` is what the slowest save so far took (at first: what loading took; 0: not known), and half as much again is
// kept free; where it is not known, a guess from its bytes, at most a part of the `left` seconds that the job has. `removal`: what the slowest one of
// older steps took; a stop waits for that behind the save before it, and for its own.
double seconds_to_stop(const CheckpointConfig&, std::int64_t bytes, double slowest, double removal, double left);

class Saves {
  public:
    // Collective over all ranks, as are save and finish. Both must outlive it.
    Saves(Session&, Console&);

    // At every checkpoint.interval steps, and after the last one.
    bool due(std::int64_t step) const;
    // The step whose checkpoint stands in checkpoint.directory, saved by this run or where it has begun; -1: none.
    std::int64_t newest() const { return newest_; }
    // Seconds that a stop will take, of `left` that the job has.
    double seconds_needed(double left) const { return seconds_to_stop(s_.config.checkpoint, bytes_, slowest_, removal_, left); }

    // Saves the state between two steps. Where a save behind training is under way it says that this one is left out, or with `must` waits for it.
    // Throws SharedError{io_failed}.
    void save(const TrainingPoint&, bool must);
    // Tells of a save behind training that has ended since, or throws its failure likewise.
    void look();
    // Waits for what is under way. Throws likewise.
    void finish();

  private:
    void tell_saved();

    Session& s_;
    Console& console_;
    Saver saver_;
    std::int64_t newest_ = -1;
    std::int64_t bytes_ = 0;   // of one, about
    double slowest_ = 0;       // seconds
    double removal_ = 0;       // of older ones, the slowest, in seconds; on rank 0
};

}  // namespace quadrille
