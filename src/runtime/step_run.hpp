// One step as it runs: tickets of the moves in flight, the running clock, what comes out. Private to the room.
#pragma once
#include "comm/engine.hpp"
#include "comm/evidence.hpp"
#include "runtime/tasks.hpp"

namespace quadrille {

class StepRun {
  public:
    // `copies` is needed where the program moves between tiers.
    StepRun(const Tasks& tasks, Engine& engine, Copies* copies, const StepInputs& inputs);

    void compute(std::int32_t op);   // runs a kernel
    void start(std::int32_t op);     // gives a move to the engine, or to the copies
    void wait(std::int32_t op);      // until a started move is done
    void move(std::int32_t op);      // starts a move and waits for it
    // What the step gave; the loss is known everywhere, from world rank loss_rank (-1: there is none). Collective over the world.
    StepResult finish(World& world, int loss_rank);

  private:
    std::size_t slot(std::int32_t op) const { return static_cast<std::size_t>(tasks_.at(op).slot); }
    void start_between_tiers(std::int32_t op);
    void done(std::int32_t op, double begin, double end);
    void expose(const Task& task, double seconds);  // waited for a move between ranks
    void tell_overlap();
    void arrived(std::int32_t op);

    const Tasks& tasks_;
    Engine& engine_;
    Evidence& evidence_;
    Copies* const copies_;
    const StepInputs& inputs_;
    std::vector<Ticket> tickets_, after_;
    std::vector<CopyTicket> copy_tickets_;
    std::vector<MoveTimes> times_;
    std::vector<Stretch> ran_;  // arithmetic, where there are moves
    StepScalars scalars_;
    StepResult result_;
    TimeLedger ledger_;
};

}  // namespace quadrille
