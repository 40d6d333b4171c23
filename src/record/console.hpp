// What the user sees while a job runs: progress and results on stdout, warnings and errors on stderr, one per job.
//
// Owns the redrawn line of a terminal. Made on every rank, but only the one that `speaks` prints, so no caller branches on the
// rank. It decides nothing and keeps no record.
#pragma once
#include "record/run_record.hpp"

#include <cstdio>
#include <string>

namespace quadrille {

struct ConsoleSettings {
    bool speaks = true;  // rank 0
    std::int64_t total_steps = 0, log_interval = 1;
    double model_flops = 0;  // per step, whole job
    double peak_flops = 0;   // per second, whole job; 0: not known, MFU is n/a
    bool loss_scale = false; // steps have one: fp16
};

class Console {
  public:
    explicit Console(ConsoleSettings settings, std::FILE* out = stdout, std::FILE* err = stderr);
    ~Console();
    Console(const Console&) = delete;
    Console& operator=(const Console&) = delete;

    // A finished step. Prints a line every log_interval steps and after the last; between, a terminal's line is redrawn. Speeds are without the saves
    // and evaluations that follow steps, of which the record's seconds have the saves.
    void step(const StepRow& row);
    void print(const std::string& text);    // results, on stdout
    void warning(const std::string& text);  // "quadrille: warning: ..." on stderr
    void error(const std::string& text);    // "quadrille: ..." on stderr

  private:
    std::string progress_line(const StepRow& row) const;
    void redraw(const std::string& line);
    void clear_line();

    ConsoleSettings settings_;
    std::FILE *out_, *err_;
    bool terminal_;
    bool drawn_ = false;      // the terminal's last line is a redrawn one
    double seconds_ = 0;      // since the last printed line
    double tokens_ = 0;       // likewise
    std::int64_t steps_ = 0;  // likewise
};

}  // namespace quadrille
