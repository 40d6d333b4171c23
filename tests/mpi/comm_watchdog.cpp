// How a job ends that stands still, and that one which is only slow does not. Each mode ends the whole job, so it has a process of its own and no
// doctest; CMakeLists.txt says with which exit code, and with which words. A second word is the algorithm of the collectives, ring where there is
// none; hierarchical has two pretended nodes.
//   slow      a rank computes three times as long as the watchdog waits while the others wait for it: 0
//   idle      nobody gets on, but nobody waits for anybody either: 0
//   busy      a rank is at one operation for ever
//   data      a rank waits for its data while the others wait in a vote
//   order     two ranks begin the collectives of two groups in another order
//   stopped   a rank is stopped in between two moves
//   inside    ... in the middle of a long one that all have entered
//   first     rank 0 is, which speaks for the job otherwise
//   differ    comm.check: a member reduces where the others gather, without a watchdog
//   counts    comm.check: one more element
//   agree     comm.check: the same all round, many times, several under way
#include <signal.h>

#include <cstdio>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <thread>

#include "comm/engine.hpp"
#include "comm/evidence.hpp"
#include "comm/watchdog.hpp"

namespace {

using namespace quadrille;
using namespace std::chrono_literals;

constexpr double patience = 1.5;  // seconds

std::string described(int rank, const Origin& origin) { return fmt::format("<line {} of rank {}>", origin.line, rank); }

Algorithm algorithm_of(const std::string& name) {
    const std::pair<const char*, Algorithm> names[] = {{"", Algorithm::ring},
                                                       {"auto", Algorithm::automatic},
                                                       {"shared", Algorithm::shared},
                                                       {"hierarchical", Algorithm::hierarchical},
                                                       {"native", Algorithm::native}};
    for (const auto& [known, algorithm] : names)
        if (name == known) return algorithm;
    throw Error(Exit::refused, fmt::format("no algorithm '{}'", name));
}

EngineOptions options_of(const std::string& algorithm, bool check) {
    EngineOptions o;
    o.algorithm = algorithm_of(algorithm);
    if (o.algorithm == Algorithm::hierarchical) o.pretend_nodes = 2;
    o.check = check;
    o.describe = described;
    return o;
}

struct Job {
    Job(World& w, const std::string& algorithm, bool check)
        : world(w), engine(w, options_of(algorithm, check)), ranks(static_cast<std::size_t>(w.size())) {
        std::iota(ranks.begin(), ranks.end(), 0);
        group = engine.group(ranks);
        std::swap(ranks[0], ranks[1]);
        other_group = engine.group(ranks);
    }
    Move move(int of, std::int32_t line, MoveKind kind = MoveKind::all_reduce, std::int64_t count = 64) {
        Move m;
        m.kind = kind;
        m.group = of;
        m.segments = {{in.data(), out.data(), count}};
        m.origin = {0, line, Axis::tp};
        return m;
    }
    // In a step's order: what this rank is about, then the move.
    void run(const Move& m) {
        world.evidence().doing(Doing::waits_for_move, packed(m.origin), now());
        engine.run(m);
    }

    World& world;
    Engine engine;
    std::vector<int> ranks;
    int group = 0, other_group = 0;
    std::vector<float> in = std::vector<float>(128, 1.0f), out = std::vector<float>(128);
};

void compute(World& world, double seconds, bool beats) {
    const double begin = now();
    world.evidence().doing(Doing::computes, packed({0, 7, {}}), begin);
    while (now() - begin < seconds) {
        std::this_thread::sleep_for(50ms);
        if (beats) world.evidence().doing(Doing::computes, packed({0, 7, {}}), now());
    }
}

void stall(World& world, const std::string& mode, const std::string& algorithm) {
    Job job(world, algorithm, false);
    const Watchdog watchdog(world, patience, described);
    const bool last = world.rank() == world.size() - 1;
    job.run(job.move(job.group, 1));
    if (mode == "slow" && last) compute(world, 3 * patience, true);
    if (mode == "idle") compute(world, 2 * patience, false);
    if (mode == "busy" && last) compute(world, 60, false);
    if (mode == "stopped" && last) raise(SIGSTOP);
    if (mode == "first" && world.rank() == 0) raise(SIGSTOP);
    if (mode == "inside") {
        std::vector<float> much(10'000'000, 1.0f);
        Move m = job.move(job.group, 2);
        m.segments = {{much.data(), much.data(), static_cast<std::int64_t>(much.size())}};
        if (!last) return job.run(m);
        const Ticket begun = job.engine.start(m);  // enters it, and goes no further than the first messages
        raise(SIGSTOP);
        job.engine.wait(begun);
    }
    if (mode == "data") {
        if (last) {
            world.evidence().doing(Doing::reads_data, 12, now());
            std::this_thread::sleep_for(60s);
        }
        world.barrier();
    }
    const bool turned = mode == "order" && last;
    job.run(job.move(turned ? job.other_group : job.group, turned ? 3 : 2));
    job.run(job.move(turned ? job.group : job.other_group, turned ? 2 : 3));
}

void check(World& world, const std::string& mode, const std::string& algorithm) {
    Job job(world, algorithm, true);
    const bool last = world.rank() == world.size() - 1;
    job.run(job.move(job.group, 1));
    if (mode == "differ") job.run(job.move(job.group, 2, last ? MoveKind::all_gather : MoveKind::all_reduce));
    if (mode == "counts") job.run(job.move(job.group, 2, MoveKind::all_reduce, last ? 65 : 64));
    for (int k = 0; mode == "agree" && k < 200; ++k) {
        std::vector<float> more(64, 1.0f);
        const Move a = job.move(job.group, 2), c = job.move(job.other_group, 4, MoveKind::all_gather);
        Move b = a;
        b.segments = {{more.data(), more.data(), 64}};
        const Ticket first = job.engine.start(a), second = job.engine.start(b);
        job.engine.wait(second);
        job.engine.wait(first);
        job.run(c);
        const auto sum = static_cast<float>(world.size());
        if (more[63] != sum) throw Error(Exit::diverged, fmt::format("{} where {} is due", more[63], sum));
    }
}

}  // namespace

int main(int argc, char** argv) {
    World world(&argc, &argv);
    try {
        const std::string mode = argc > 1 ? argv[1] : "", algorithm = argc > 2 ? argv[2] : "";
        if (mode == "differ" || mode == "counts" || mode == "agree") check(world, mode, algorithm);
        else stall(world, mode, algorithm);
    } catch (const Error& e) {
        std::fprintf(stderr, "%s\n", e.what());
        world.abort(e.exit());
    }
    return 0;
}
