#include "comm/bench.hpp"

#include <algorithm>
#include <limits>

#include "comm/staging.hpp"

namespace quadrille {
namespace {

constexpr int message_tag = 17;

struct Bench {
    World& world;
    Engine& engine;
    int group;
    std::int64_t count;  // floats of the whole buffer, a multiple of the ranks
    float* in;
    float* out;

    int ranks() const { return world.size(); }
    std::int64_t slice() const { return count / ranks(); }
    int partner() const { return (world.rank() ^ 1) < ranks() ? world.rank() ^ 1 : -1; }

    void ring(MoveKind kind) const {
        Move move;
        move.kind = kind;
        move.group = group;
        move.segments = {{in, out, count}};
        engine.run(move);
    }
    void send() const {
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

void measure(const Bench& bench, MoveKind kind, const std::string& name, int repetitions, std::vector<CollectiveRow>& rows) {
    std::vector<double> ours, theirs;
    const bool sends = kind == MoveKind::send;
    for (int k = -1; k < repetitions; ++k) {  // the first call of each is not counted
        const double mine = time_of(bench.world, [&] { sends ? bench.send() : bench.ring(kind); });
        const double native = time_of(bench.world, [&] { bench.native(kind); });
        if (k < 0) continue;
        ours.push_back(sends ? mine / 2 : mine);
        theirs.push_back(sends ? native / 2 : native);
    }
    const std::int64_t bytes = bench.count * std::int64_t{sizeof(float)};
    for (const auto& [algorithm, times] : {std::pair{"ring", ours}, std::pair{"native", theirs}}) {
        const double seconds = median(times);
        rows.push_back({name, algorithm, bench.ranks(), bytes, seconds, static_cast<double>(bytes) / seconds * 1e-9, "GB/s"});
    }
}

}  // namespace

std::vector<CollectiveRow> bench_collectives(World& world, Engine& engine, std::span<const std::int64_t> sizes, int repetitions) {
    constexpr std::int64_t element = sizeof(float);
    if (world.size() < 2) throw Error(Exit::refused, "bench collectives needs at least 2 ranks under mpirun, not 1");
    require(repetitions > 0, "a median needs a measurement");
    std::vector<int> all(static_cast<std::size_t>(world.size()));
    for (int r = 0; r < world.size(); ++r) all[static_cast<std::size_t>(r)] = r;
    Bench bench{world, engine, engine.group(all), 0, nullptr, nullptr};
    std::vector<CollectiveRow> rows;
    for (const std::int64_t size : sizes) {
        bench.count = std::max<std::int64_t>(size / element / world.size(), 1) * world.size();
        require(bench.count <= std::numeric_limits<int>::max(), "the native collectives count in an int");
        const Staging in(bench.count * element), out(bench.count * element);  // kept, touched memory, as the engine's own
        bench.in = reinterpret_cast<float*>(in.data());
        bench.out = reinterpret_cast<float*>(out.data());
        measure(bench, MoveKind::all_reduce, "all_reduce", repetitions, rows);
        measure(bench, MoveKind::reduce_scatter, "reduce_scatter", repetitions, rows);
        measure(bench, MoveKind::all_gather, "all_gather", repetitions, rows);
        measure(bench, MoveKind::all_to_all, "all_to_all", repetitions, rows);
        measure(bench, MoveKind::send, "send", repetitions, rows);
    }
    return rows;
}

}  // namespace quadrille
