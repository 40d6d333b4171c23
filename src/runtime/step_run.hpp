// One step as it runs: tickets of the moves in flight, the running clock, what comes out. Private to the room.
#pragma once
#include "comm/engine.hpp"
#include "runtime/tasks.hpp"

namespace quadrille {

class StepRun {
  public:
    StepRun(const Tasks& tasks, Engine& engine, const StepInputs& inputs);

    void compute(std::int32_t op);   // runs a kernel
    void start(std::int32_t op);     // gives a move to the engine
    void wait(std::int32_t op);      // until a started move is done
    void move(std::int32_t op);      // starts a move and waits for it
    // What the step gave; the loss is known everywhere, from world rank loss_rank (-1: there is none). Collective over the world.
    StepResult finish(World& world, int loss_rank);

  private:
    std::size_t slot(std::int32_t op) const { return static_cast<std::size_t>(tasks_.at(op).slot); }
    void done(std::int32_t op, double begin, double end);
    void arrived(std::int32_t op);

    const Tasks& tasks_;
    Engine& engine_;
    const StepInputs& inputs_;
    std::vector<Ticket> tickets_, after_;
    std::vector<MoveTimes> times_;
    StepScalars scalars_;
    StepResult result_;
    TimeLedger ledger_;
};

}  // namespace quadrille
