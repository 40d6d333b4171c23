// The run record as plain data: everything a run tells the world, filled by the training loop on rank 0.
//
// Owns the names of the record's time categories, tiers and books and the shapes of its tables. Tables of more than one index are
// flat and row-major. It does no I/O (record_writer.hpp writes it, record_reader.hpp reads it back) and knows no MPI: the loop
// gathers what other ranks measured.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace quadrille {

// One optimizer step. `tokens`: counted tokens of the global batch. `seconds`: rank 0's wall clock of the step. `grad_norm`:
// before clipping; `clip_factor`: what the gradient was multiplied by (1: not clipped). `data_hash`: the same on every grid.
struct StepRow {
    std::int64_t step = 0;
    double loss = 0, grad_norm = 0, clip_factor = 1, learning_rate = 0, loss_scale = 1;
    std::int64_t tokens = 0;
    double seconds = 0;
    std::uint64_t data_hash = 0;
    double residual_norm = 0;  // of what compressed gradients have left unsent, all ranks' residuals together
};

// One evaluation, after step `step`; its seconds are in no step's.
struct EvaluationRow {
    std::int64_t step = 0;
    double loss = 0, seconds = 0;
};

// Names this layout of run.h5; another value is another layout.
inline constexpr std::string_view record_schema = "quadrille-run-1";

struct RunRecord {
    // A joint move counts for the first of dp, sp, tp, pp in its set of axes.
    static constexpr std::array<std::string_view, 13> categories = {"compute",      "optimizer",  "exposed_dp",    "exposed_tp",
                                                                    "exposed_sp",   "exposed_pp", "pipeline_idle", "exposed_copy",
                                                                    "exposed_disk", "data",       "checkpoint",    "compression", "other"};
    static constexpr std::array<std::string_view, 3> tiers = {"device", "host", "nvme"};
    static constexpr std::array<std::string_view, 5> books = {"weights", "gradients", "optimizer", "activations", "buffers"};
    static constexpr std::array<std::string_view, 3> copy_queues = {"copy_in", "copy_out", "disk"};
    static constexpr std::size_t peak_cells = tiers.size() * books.size();
    static constexpr std::int64_t still_running = -1;
    static constexpr std::int64_t not_told = -1;

    std::string config_yaml;                         // the resolved input
    std::string command;                             // the command line as given
    std::string start_time;                          // UTC, ISO 8601; see utc_now
    std::map<std::string, std::string> environment;  // mpi, device, blas, slurm_job_id, ...; `hosts` is derived from below

    std::map<std::string, std::string> choices;      // what `auto` took where the machine was asked: key, value and reason

    std::vector<std::array<std::int64_t, 4>> coordinates;  // [rank] dp, tp, pp, sp
    std::vector<std::string> hosts;                        // [rank]

    std::vector<StepRow> steps;
    std::vector<double> time_seconds;  // [step, rank, category]: sums over category to the step's wall clock on that rank
    std::vector<EvaluationRow> evaluations;

    std::vector<std::int64_t> predicted_peak, measured_peak;  // [rank, tier, book] bytes at the tier's high-water mark
    std::vector<std::int64_t> reserved, huge_pages;           // [rank, tier] bytes; huge_pages: not_told where the system does not tell
    std::vector<std::int64_t> shared;                         // [rank] bytes of other ranks' memory that the process maps
    std::vector<std::int64_t> process_peak;                   // [rank] bytes, the operating system's figure

    std::vector<std::string> wire_axes;                   // dp, tp, sp, pp, and sets joined by +
    std::vector<std::int64_t> wire_predicted, wire_sent;  // [rank, axis] bytes per step
    std::vector<std::int64_t> wire_uncompressed;          // ... if no gradient were compressed
    std::vector<double> wire_busy, wire_exposed;          // [step, rank, axis] seconds in which a move was under way, and a rank waited for one
    std::vector<double> compute_beside, compute_alone;    // [step, rank] seconds of arithmetic while moves were under way; what it takes without
    bool wire_estimated = false;                          // wire_sent is a formula's, not a count

    std::vector<std::int64_t> copies_predicted, copies_moved;  // [rank, copy queue] bytes per step between tiers

    double model_flops = 0, hardware_flops = 0;  // per step, whole job
    std::int64_t exit_code = still_running;      // of the job; still_running until it is known
    bool complete = false;                       // all steps done

    // Where the run has begun: with a checkpoint, after that step. `continues`: the record of this directory that tells of the steps up to there,
    // else the checkpoint's folder; "": the run has begun with its first step.
    std::string continues;
    std::int64_t continues_after = 0;

    std::int64_t ranks() const { return static_cast<std::int64_t>(coordinates.size()); }

    // Appends a step, its [rank, category] seconds, and by rank what its moves took: wire_busy by axis, wire_exposed by axis, compute_beside,
    // compute_alone. Requires ranks() · categories.size() and ranks() · move_cells() of them.
    void add_step(const StepRow& row, const std::vector<double>& seconds, const std::vector<double>& moves);
    std::size_t move_cells() const { return 2 * wire_axes.size() + 2; }

    // Adds each rank's `seconds` of what followed the last step and belongs to it, a checkpoint's, to its row and to that category. Nothing where
    // there is no step.
    void add_to_last_step(std::size_t category, const std::vector<double>& seconds);

    // Programmer's check that every table has the shape its neighbours imply. The tables of memory, wire and copies may be empty as
    // long as nothing was measured (a run that ends early); they are written as zeros then.
    void check_shapes() const;
};

// The present moment as the record writes it: 2026-01-31T12:00:00Z.
std::string utc_now();

// What this process can tell of its machine without MPI or a device: cpu, kernel, omp_num_threads, and Slurm's and PBS's job
// variables in lower case (slurm_job_id, ...). The loop adds mpi, device and blas.
std::map<std::string, std::string> host_environment();

}  // namespace quadrille
