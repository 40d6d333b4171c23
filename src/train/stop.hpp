// Stops on purpose: a signal, or the end of the time that a job has, on any rank becomes one decision of all ranks, at the same step.
//
// SIGTERM and SIGUSR1 ask for a stop. They are taken, from before MPI starts, by a thread that does nothing else but note them, and blocked in all
// others: oneDNN's products (2.6) keep data below their stack pointer, where the frame of a handler would go, and a signal to a thread within one
// corrupted its memory. Training looks at the notes where all ranks pass. A repeat within 5 s is the same signal, for launchers deliver twice; one
// that comes later ends the process at once, with 128 + signal. What is done at a stop is the trainer's (trainer.hpp).
#pragma once
#include "base/error.hpp"
#include "comm/ballot.hpp"

#include <optional>
#include <string>

namespace quadrille {

// From here on SIGTERM and SIGUSR1 wait, in this thread and in all that it starts, also over an exec.
void hold_signals();
// The thread that takes both, from now on: for `train`, once they are held and before another thread is there. Throws std::system_error where it
// cannot be started.
void handle_signals();
// Both end the process, as usual: for all other commands.
void release_signals();

// Why the ranks stop.
struct StopReason {
    enum class Kind : std::uint8_t { time_limit, slurm_end, signal };
    Kind kind = Kind::signal;
    int rank = 0;    // the lowest that had it to say
    int signal = 0;  // its number
};

// "SIGUSR1, which rank 3 got" or "train.time_limit 3600 s"
std::string text(const StopReason&, double time_limit);

// The seconds until the job's end that the environment tells (SLURM_JOB_END_TIME, in seconds since 1970); none where it does not.
std::optional<double> seconds_of_job();

// The seconds that a process has which began at `begun`, on now(): until time_limit (0: none) and the job's end; infinite where nothing ends it.
double seconds_left(double begun, double time_limit);

// Of a run whose time is over before it has made a step, and which needs so many seconds to stop: to queue it again would do so for ever.
Error no_time(double time_limit, double left, double needed);

class Stop {
  public:
    // `begun`: when the process began, on now(). time_limit: in seconds from there; 0: none. Collective, as is all below.
    Stop(const World&, double begun, double time_limit);

    // Until the end of this rank's time; infinite where it has none.
    double seconds_left() const;
    // A vote begins. `needed`: seconds from now that it takes to pass by the next vote's end and to stop then.
    void begin(double needed);
    void end();
    // Both at once, where there is no work in between.
    void ask(double needed) { begin(needed), end(); }
    // Why to stop, once a vote has found it: alike on all ranks. It stays.
    const std::optional<StopReason>& reason() const { return reason_; }

  private:
    std::int64_t wish(double needed) const;

    Ballot ballot_;
    const int rank_;
    double time_limit_at_, slurm_end_at_;  // on now(); infinite: none
    std::optional<StopReason> reason_;
};

}  // namespace quadrille
