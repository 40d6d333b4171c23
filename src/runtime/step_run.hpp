// One step as it runs: tickets of the moves in flight, the running clock, what comes out. Private to the room.
//
// On a device with queues the calling thread runs ahead: kernels are put on the compute queue, which itself waits for copies; the thread waits only
// for what it touches itself, or has touched by the engine. When all is done the ops tell when they ran.
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
    void wait_before(std::int32_t op, std::int32_t move);  // so long as `op` needs it to
    void move(std::int32_t op);      // starts a move and waits for it
    void poison_before(std::int32_t op);
    // What the step gave; the loss is known everywhere, from world rank loss_rank (-1: there is none). Collective over the world.
    StepResult finish(World& world, int loss_rank);

  private:
    std::size_t slot(std::int32_t op) const { return static_cast<std::size_t>(tasks_.at(op).slot); }
    void start_between_tiers(std::int32_t op);
    void done(std::int32_t op, double begin, double end);
    void expose(const Task& task, double seconds);  // waited for a move between ranks
    template <class F>
    void naming(std::int32_t op, F f) const;
    void put_on_queue(std::int32_t op);
    void settle(std::int32_t op);    // nothing on the device's queues is in the way of what the thread is about to do or hand to the engine
    void finish_queue();
    void tell_overlap();
    void arrived(std::int32_t op);

    const Tasks& tasks_;
    Engine& engine_;
    Evidence& evidence_;
    Copies* const copies_;
    Device& device_;
    const StepInputs& inputs_;
    std::vector<Ticket> tickets_, after_;
    std::vector<CopyTicket> copy_tickets_;
    std::vector<MoveTimes> times_;
    std::vector<Stretch> ran_;  // arithmetic, where there are moves
    struct Queued { std::int32_t op; Category waited; Mark begin, end; };
    std::vector<Queued> queued_;             // on the compute queue, in order
    std::vector<QueuedTime> queued_times_;   // when they ran, once they have
    std::vector<std::int32_t> behind_;       // copies that it waits for, and nobody else has
    Category waits_ = Category::other;       // what it waits for next
    Mark in_host_;                           // the last kernel that touches memory of the host
    StepScalars scalars_;
    StepResult result_;
    TimeLedger ledger_;
};

}  // namespace quadrille
