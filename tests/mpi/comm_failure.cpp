// How a job ends when messages go wrong: at once, with the exit code of a failed rank, and never by hanging. Each mode ends the
// whole job, so it has a process of its own and no doctest; CMakeLists.txt says what it must end with.
//   mismatch   a stage message that is not the one due is noticed by the progress thread and thrown to whoever asks
//   leave      an engine that is left with a receive in flight
//   threads    an MPI library without MPI_THREAD_MULTIPLE: refused, with one message
#include <cstdio>
#include <cstring>

#include "comm/engine.hpp"

namespace {

bool without_threads = false;

}  // namespace

// The library's own, offering less where a test asks for that.
extern "C" int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
    const int rc = PMPI_Init_thread(argc, argv, required, provided);
    if (without_threads) *provided = MPI_THREAD_FUNNELED;
    return rc;
}

namespace {

using namespace quadrille;

// The tags of the two messages fall together (issue order decides then), so only what travels with the message can tell.
void mismatch(World& world) {
    Engine engine(world);
    float value = 1;
    Move move;
    move.kind = world.rank() == 0 ? MoveKind::send : MoveKind::receive;
    move.peer = 1 - world.rank();
    move.message = world.rank() == 0 ? MessageTag{0, 1, 0} : MessageTag{4, 0, 0};
    move.segments = {{&value, &value, 1}};
    try {
        const Ticket ticket = engine.start(move);
        while (!engine.done(ticket)) {
        }
        if (world.rank() == 1) world.abort(Exit::done);  // not noticed: the test fails
        world.barrier();
    } catch (const Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
        world.abort(error.exit());
    }
}

void leave(World& world) {
    float value = 0;
    Move move;
    move.kind = MoveKind::receive;
    move.peer = 1 - world.rank();
    move.segments = {{nullptr, &value, 1}};
    Engine engine(world);
    if (world.rank() == 1) engine.start(move);
}

int threads(int argc, char** argv) {
    try {
        const World world(&argc, &argv);
    } catch (const Error& error) {
        return static_cast<int>(error.exit());
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    without_threads = argc == 2 && std::strcmp(argv[1], "threads") == 0;
    if (without_threads) return threads(argc, argv);
    World world(&argc, &argv);
    if (argc != 2 || world.size() != 2) world.abort(Exit::refused);
    if (std::strcmp(argv[1], "mismatch") == 0) mismatch(world);
    if (std::strcmp(argv[1], "leave") == 0) leave(world);
    return 0;
}
