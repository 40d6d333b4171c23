#include "comm/bench.hpp"

#include <malloc.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>

#include "comm/staging.hpp"

namespace quadrille {
namespace {

constexpr int message_tag = 17;

// Whether malloc keeps what is freed, for the process's next large piece. What it has kept once it goes on keeping, for the next time.
void keep_pages(bool keep) {
#ifdef __GLIBC__
    mallopt(M_MMAP_MAX, keep ? 0 : 65536);
    mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
#else
    static_cast<void>(keep);
#endif
}

// One of ours.
struct Ours {
    std::string algorithm;
    Engine engine;
    int group;
    Ours(World& world, std::string name, const EngineOptions& options, std::span<const int> ranks)
        : algorithm(std::move(name)), engine(world, options), group(engine.group(ranks)) {}
};

struct Bench {
    World& world;
    std::int64_t count;  // floats of the whole buffer, a multiple of the ranks
    float* in;
    float* out;

    int ranks() const { return world.size(); }
    std::int64_t slice() const { return count / ranks(); }
    int partner() const { return (world.rank() ^ 1) < ranks() ? world.rank() ^ 1 : -1; }

    void collective(Ours& ours, MoveKind kind) const {
        Move move;
        move.kind = kind;
        move.group = ours.group;
        move.segments = {{in, out, count}};
        ours.engine.run(move);
    }
    void send(Engine& engine) const {
        if (partner() < 0) return;
        Move out_move, in_move;
        out_move.kind = MoveKind::send;
        in_move.kind = MoveKind::receive;
        out_move.peer = in_move.peer = partner();
        out_move.segments = {{in, nullptr, count}};
        in_move.segments = {{nullptr, out, count}};
        const bool first = world.rank() % 2 == 0;
        engine.run(first ? out_move : in_move);
        engine.run(first ? in_move : out_move);
    }

    void native(MoveKind kind) const {
        const auto whole = static_cast<int>(count), part = static_cast<int>(slice());
        const MPI_Comm comm = world.comm();
        switch (kind) {
            case MoveKind::all_reduce: return mpi_check(MPI_Allreduce(in, out, whole, MPI_FLOAT, MPI_SUM, comm));
            case MoveKind::reduce_scatter: return mpi_check(MPI_Reduce_scatter_block(in, out, part, MPI_FLOAT, MPI_SUM, comm));
            case MoveKind::all_gather: return mpi_check(MPI_Allgather(in, part, MPI_FLOAT, out, part, MPI_FLOAT, comm));
            case MoveKind::all_to_all: return mpi_check(MPI_Alltoall(in, part, MPI_FLOAT, out, part, MPI_FLOAT, comm));
            default: return native_send();
        }
    }
    void native_send() const {
        if (partner() < 0) return;
        const auto whole = static_cast<int>(count);
        const auto go = [&] { mpi_check(MPI_Send(in, whole, MPI_FLOAT, partner(), message_tag, world.comm())); };
        const auto come = [&] {
            mpi_check(MPI_Recv(out, whole, MPI_FLOAT, partner(), message_tag, world.comm(), MPI_STATUS_IGNORE));
        };
        if (world.rank() % 2 == 0)
            go(), come();
        else
            come(), go();
    }
};

template <class F>
double time_of(const World& world, F f) {
    world.barrier();
    const double begin = now();
    f();
    const double mine = now() - begin;
    double slowest = 0;
    mpi_check(MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, world.comm()));
    return slowest;
}

double median(std::vector<double> times) {
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

struct Contender {
    std::string algorithm;
    std::function<void()> call;
    std::vector<double> times = {};
};

std::vector<Contender> contenders(const Bench& bench, MoveKind kind, std::deque<Ours>& ours) {
    std::vector<Contender> all;
    if (kind == MoveKind::send) {
        all.push_back({ours.front().algorithm, [&] { bench.send(ours.front().engine); }});
    } else {
        for (Ours& o : ours) {
            if (kind == MoveKind::all_to_all && &o != &ours.front()) break;  // there is one way only
            all.push_back({o.algorithm, [&bench, &o, kind] { bench.collective(o, kind); }});
        }
    }
    all.push_back({"native", [&bench, kind] { bench.native(kind); }});
    if (kind == MoveKind::all_reduce) {
        all.push_back({"native-untuned", [&bench, kind] {
                           keep_pages(false);
                           bench.native(kind);
                           keep_pages(true);
                       }});
    }
    return all;
}

// In turn, so that a disturbance meets all. `share` of a call's time is shown.
void measure(const Bench& bench, const std::string& name, std::vector<Contender> all, double share, int repetitions,
             std::vector<CollectiveRow>& rows) {
    for (int k = -1; k < repetitions; ++k) {  // the first call of each is not counted
        for (Contender& c : all) {
            const double seconds = time_of(bench.world, c.call);
            if (k >= 0) c.times.push_back(seconds * share);
        }
    }
    const std::int64_t bytes = bench.count * std::int64_t{sizeof(float)};
    for (const Contender& c : all) {
        const double seconds = median(c.times);
        rows.push_back({name, c.algorithm, bench.ranks(), bytes, seconds, static_cast<double>(bytes) / seconds * 1e-9, "GB/s"});
    }
}

}  // namespace

std::vector<CollectiveRow> bench_collectives(World& world, const EngineOptions& options, std::span<const std::int64_t> sizes, int repetitions) {
    constexpr std::int64_t element = sizeof(float);
    if (world.size() < 2) throw Error(Exit::refused, "bench collectives needs at least 2 ranks under mpirun, not 1");
    require(repetitions > 0, "a median needs a measurement");
    std::vector<int> all(static_cast<std::size_t>(world.size()));
    for (int r = 0; r < world.size(); ++r) all[static_cast<std::size_t>(r)] = r;
    std::deque<Ours> ours;
    constexpr std::pair<const char*, Algorithm> algorithms[] = {
        {"ring", Algorithm::ring}, {"shared", Algorithm::shared}, {"auto", Algorithm::automatic}};
    for (const auto& [name, algorithm] : algorithms) {
        EngineOptions its = options;
        its.algorithm = algorithm;
        ours.emplace_back(world, name, its, all);
        if (ours.back().engine.service(ours.back().group).instead != Instead::as_asked) ours.pop_back();  // it would be the ring under another name
    }
    Bench bench{world, 0, nullptr, nullptr};
    std::vector<CollectiveRow> rows;
    keep_pages(true);
    for (const std::int64_t size : sizes) {
        bench.count = std::max<std::int64_t>(size / element / world.size(), 1) * world.size();
        require(bench.count <= std::numeric_limits<int>::max(), "the native collectives count in an int");
        const Staging in(bench.count * element), out(bench.count * element);  // kept, touched memory, as the engine's own
        bench.in = reinterpret_cast<float*>(in.data());
        bench.out = reinterpret_cast<float*>(out.data());
        for (const auto& [kind, name] : {std::pair{MoveKind::all_reduce, "all_reduce"}, std::pair{MoveKind::reduce_scatter, "reduce_scatter"},
                                         std::pair{MoveKind::all_gather, "all_gather"}, std::pair{MoveKind::all_to_all, "all_to_all"},
                                         std::pair{MoveKind::send, "send"}})
            measure(bench, name, contenders(bench, kind, ours), kind == MoveKind::send ? 0.5 : 1, repetitions, rows);
        const auto bytes = static_cast<std::size_t>(bench.count * element);
        measure(bench, "copy", {{"memcpy", [&] { std::memcpy(bench.out, bench.in, bytes), world.barrier(); }}}, 1, repetitions, rows);
    }
    keep_pages(false);
    return rows;
}

}  // namespace quadrille
