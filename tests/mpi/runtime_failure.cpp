// How a step ends that fails on one rank alone, with moves in flight that only the others could finish: in time, with its own error, and with
// nothing that still touches the step. Each mode ends the whole job, so it has a process of its own and no doctest.
//   load     what a step's input throws while gathered weights are under way; exit code 5
//   copies   the copy queues are left with a copy that waits for a message that nobody sends; exit code 6, from the message in flight
#include "runtime_train.hpp"

#include "runtime/copies.hpp"

#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

namespace {

using namespace quadrille;
using namespace quadrille::test;

// Error{io_failed} from microbatch 1 on rank 1; the others wait for it, until it ends the job.
void load_that_fails(World& world) {
    Config config = tiny(false);
    config.grid.dp = 2;
    config.train.gradient_accumulation_steps = 2;
    config.sharding.zero_stage = 3;
    config.sharding.shard_size = 2;
    Trainer trainer(world, config);
    trainer.step(0);
    StepInputs in = trainer.inputs(1, false);
    if (world.rank() == 1)
        in.load = [whole = in.load](const LoadRequest& r) {
            if (r.microbatch == 1) throw Error(Exit::io_failed, "this batch cannot be read");
            whole(r);
        };
    for (int again = 0; again < 2; ++again) {  // the step is not to be run again: the same error, at once
        try {
            trainer.run(in);
            world.abort(Exit::done);
        } catch (const Error& error) {
            if (std::strcmp(error.what(), "this batch cannot be read") != 0) world.abort(Exit::refused);
            std::fprintf(stderr, "rank %d: %s\n", world.rank(), error.what());
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(300));  // time for the others' messages to arrive
    }
    world.abort(Exit::io_failed);
}

void copy_that_waits(World& world) {
    constexpr std::int64_t bytes = 4096;
    CpuDevice device(1);
    Arena arena(device, {bytes, bytes, 0}, "the test", world.rank(), 1);
    Move move;
    move.kind = MoveKind::receive;
    move.peer = 1 - world.rank();
    move.segments = {{nullptr, arena.data(Tier::device), bytes / 4}};
    Engine engine(world);
    if (world.rank() != 1) return;
    Copies copies(arena, engine);
    copies.start({Queue::copy_out, {Tier::device, 0, bytes}, {Tier::host, 0, bytes}}, {engine.start(move)}, {}, nullptr);
}

}  // namespace

int main(int argc, char** argv) {
    World world(&argc, &argv);
    if (argc != 2 || world.size() != 2) world.abort(Exit::refused);
    if (std::strcmp(argv[1], "load") == 0) load_that_fails(world);
    if (std::strcmp(argv[1], "copies") == 0) copy_that_waits(world);
    return 0;
}
