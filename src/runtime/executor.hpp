// The reader of a compiled program that runs it, on one rank. Owns the bound kernels and moves; borrows program, arena with its device, engine.
//
// Ops run in issue order: those of the compute queue by the device's kernels, moves between ranks behind them in the Engine, moves between tiers
// behind a thread of their own (runtime/copies.hpp). What waits for what is derived once, from the bytes each op touches (runtime/waits.hpp).
#pragma once
#include "comm/engine.hpp"
#include "ir/program.hpp"
#include "kernels/kernels.hpp"
#include "runtime/arena.hpp"
#include "runtime/step.hpp"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace quadrille {

struct ExecutorOptions {
    int threads = 1;                      // OpenMP team of the compute queue
    std::vector<std::string> wire_axes;   // the engine's accounts by name; must hold all of wire_axes(program)
    bool poison = false;                  // debug: a buffer becomes NaN after its last use
    std::int64_t snapshot = 0;            // bytes of host memory that are held beside the program's buffers
    int number = 0;                       // of the program among the job's, alike on all ranks: Origin::program of its moves
};

// Names of the sets of axes that the program's moves go over, as the record has them ("dp", "tp", "dp+sp"), sorted. Pure.
std::vector<std::string> wire_axes(const Program& program);

class Executor {
  public:
    // Collective over all ranks of the world, whose grid the program's must be. Everything named must outlive the executor.
    // Several executors may stand on one arena (training, evaluation): their programs agree on the persistent buffers' places.
    Executor(const Program& program, World& world, Engine& engine, Arena& arena, const ExecutorOptions& options);
    ~Executor();
    Executor(const Executor&) = delete;
    Executor& operator=(const Executor&) = delete;

    // One step. Collective over all ranks. Throws what `load` throws, Error{io_failed} of the nvme tier, and Error{rank_failed} when a peer is
    // lost. Then nothing of the step is under way any more but what the MPI library and the file have begun: the arena must stay until the
    // process ends, which is all that is left to do, for neither engine nor executor can run again and the other ranks wait.
    StepResult run(const StepInputs& inputs);

  private:
    struct State;
    std::unique_ptr<State> state_;
};

// Bytes of scratch memory that each op's kernel needs, for lay_out. Pure.
std::function<std::int64_t(const Program&, const Op&)> device_workspace(std::shared_ptr<const Kernels> kernels);

// What the op is called in a trace: "F layers.0 matmul@3".
std::string label(const Program& program, const Op& op);

}  // namespace quadrille
