// What a run is made of, in order of construction: input, programs, memory, ranks. Owns all of it; trainer.hpp drives it.
#pragma once
#include "comm/engine.hpp"
#include "compile/compile.hpp"
#include "config/load.hpp"
#include "data/data.hpp"
#include "data/loader.hpp"
#include "device/device.hpp"
#include "model/model.hpp"
#include "plan/plan.hpp"
#include "record/chain.hpp"
#include "record/output_directory.hpp"
#include "record/run_record.hpp"
#include "runtime/executor.hpp"
#include "runtime/state.hpp"
#include "train/checkpoint_directory.hpp"
#include "train/resume.hpp"

#include <optional>

namespace quadrille {

struct Arguments {
    std::string command;                  // as given, for the record
    std::string input;                    // path of the input file, "-" for standard input
    std::vector<std::string> overrides;   // "section.key=value"
    double begun = 0;                     // when the process began, on now()
};

class Session {
  public:
    // Collective over all ranks. Reads and checks the input on rank 0, looks for the checkpoint to go on from, opens the data, compiles, verifies the
    // programs of the whole grid on rank 0, makes sure that they fit, and only then takes the memory, loads, and creates the output directory.
    // Throws SharedError.
    Session(World&, const Arguments&);

    World& world;
    std::vector<std::string> notes, warnings;   // to be printed, on rank 0
    Config config;
    Grid grid;
    Coordinate coordinate;
    Start start;
    Data data;
    Compiled training;
    std::optional<Compiled> evaluation;          // if the run evaluates
    RunRecord record;                            // what is known before the first step; rank 0's is written
    RecordPlace record_place;                    // where
    std::vector<std::string> wire_axes;

    const Program& program() const { return training.programs[static_cast<std::size_t>(coordinate[Axis::pp])]; }
    const Program* evaluation_program() const { return evaluation ? &evaluation->programs[static_cast<std::size_t>(coordinate[Axis::pp])] : nullptr; }
    SequenceBlock sequences() const;             // this rank's part of each global batch
    // The line that a rank of the world runs at `origin`, as `plan --program` prints it. From any thread.
    std::string line(int rank, const Origin& origin) const;

    Engine& engine() { return *engine_; }
    Executor& train() { return *train_; }
    Executor& evaluate() { return *evaluate_; }
    Arena& arena() { return *arena_; }
    std::span<std::byte> snapshot() const { return snapshot_; }   // memory for checkpoints behind training; empty without

  private:
    void read_input(const Arguments&);
    void settle_choices();                       // of the input, what it leaves to the machine
    void compile_programs();
    const Program& fullest_program(Tier) const;  // of training and evaluation, the one whose arena is larger
    Budget budget(Tier) const;
    void check_tier(Tier, const Arguments&);
    void check_memory(const Arguments&);
    void describe(const Arguments&);
    void predict();                              // of the record, what the programs say of each rank
    void take_memory();
    void open_file(std::int64_t bytes);          // of the nvme tier
    void make_executors(const EngineOptions& engine);
    void describe_engine();                      // of the record, what the engine has taken and given
    void load_state();
    void check_time(const Arguments&);           // that one step fits into it
    void create_directories();                   // and the record's place in them

    Job job_;
    std::unique_ptr<OutputLock> output_lock_;                     // rank 0's, as is the next
    std::unique_ptr<CheckpointDirectory> checkpoint_directory_;
    std::unique_ptr<Device> device_;
    std::optional<Arena> arena_;
    std::span<std::byte> snapshot_;
    std::optional<Engine> engine_;
    std::optional<Executor> train_, evaluate_;
};

}  // namespace quadrille
