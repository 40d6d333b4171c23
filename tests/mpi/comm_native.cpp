// What comm.algorithm native asks of the MPI library: nothing that MPI forbids, calls of bounded size, and for small things the same bits on all
// members. The library's calls go through wrappers of this file, since not every library complains.
#include "mpi_main.hpp"

#include <cmath>
#include <limits>

#include "comm_moves.hpp"

namespace {

std::int64_t largest_call = 0;  // bytes of the whole buffer
bool aliased = false;

std::int64_t bytes_of_type(MPI_Datatype type) {
    int bytes = 0;
    MPI_Type_size(type, &bytes);
    return bytes;
}

void note(const void* in, const void* out, std::int64_t count, MPI_Datatype type) {
    const std::int64_t bytes = count * bytes_of_type(type);
    largest_call = std::max(largest_call, bytes);
    const auto *first = static_cast<const char*>(in), *to = static_cast<const char*>(out);
    aliased |= in != MPI_IN_PLACE && bytes > 0 && to >= first && to < first + bytes;
}

std::int64_t sum_of(const int* counts, MPI_Comm comm) {
    int members = 0;
    MPI_Comm_size(comm, &members);
    return std::accumulate(counts, counts + members, std::int64_t{0});
}

}  // namespace

extern "C" int MPI_Iallreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request* request) {
    note(in, out, count, type);
    return PMPI_Iallreduce(in, out, count, type, op, comm, request);
}
extern "C" int MPI_Ireduce_scatter(const void* in, void* out, const int* counts, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                                   MPI_Request* request) {
    note(in, out, sum_of(counts, comm), type);
    return PMPI_Ireduce_scatter(in, out, counts, type, op, comm, request);
}
extern "C" int MPI_Iallgatherv(const void* in, int count, MPI_Datatype type, void* out, const int* counts, const int* places, MPI_Datatype out_type,
                               MPI_Comm comm, MPI_Request* request) {
    note(out, in, sum_of(counts, comm), out_type);
    return PMPI_Iallgatherv(in, count, type, out, counts, places, out_type, comm, request);
}

namespace quadrille::test {
namespace {

std::vector<int> everyone() {
    std::vector<int> all(static_cast<std::size_t>(world().size()));
    std::iota(all.begin(), all.end(), 0);
    return all;
}

EngineOptions native() {
    EngineOptions options;
    options.algorithm = Algorithm::native;
    return options;
}

Move reduction(int group, ReduceOp op, float* at, std::int64_t count) {
    Move m;
    m.op = op;
    m.group = group;
    m.segments = {{at, at, count}};
    return m;
}

}  // namespace

TEST_CASE("in place: what MPI would call aliased buffers goes another way") {
    Engine engine(world(), native());
    const int group = engine.group(everyone());
    with_type(DType::f32, 31, everyone(), world().rank(), [&](const auto& maker) {
        for (const MoveKind kind : {MoveKind::all_reduce, MoveKind::reduce_scatter, MoveKind::all_gather}) {
            Case c;
            c.move.kind = kind;
            c.move.group = group;
            if (kind == MoveKind::all_reduce) maker.all_reduce(c, ReduceOp::sum, {30011}, true);
            if (kind == MoveKind::reduce_scatter) maker.reduce_scatter(c, ReduceOp::sum, 30011, Cut::equal, true);
            if (kind == MoveKind::all_gather) maker.all_gather(c, 30011, Cut::equal, true);
            aliased = false;
            engine.run(c.move);
            INFO("kind ", static_cast<int>(kind));
            CHECK(!aliased);
            CHECK(c.buffers == c.expected);
        }
    }, true);
}

TEST_CASE("no call is larger than the watchdog can see through") {
    constexpr std::int64_t most = std::int64_t{32} << 20, count = 12'000'001;
    Engine engine(world(), native());
    std::vector<float> whole(static_cast<std::size_t>(count), 1.0F), slice(static_cast<std::size_t>(count));
    for (const MoveKind kind : {MoveKind::all_reduce, MoveKind::reduce_scatter, MoveKind::all_gather}) {
        Move m = reduction(engine.group(everyone()), ReduceOp::sum, whole.data(), count);
        m.kind = kind;
        if (kind == MoveKind::reduce_scatter) m.segments[0].out = slice.data();
        if (kind == MoveKind::all_gather) m.segments[0].in = slice.data();
        largest_call = 0;
        engine.run(m);
        CHECK(largest_call > 0);
        CHECK(largest_call <= most);
    }
    CHECK(whole.back() == static_cast<float>(world().size() * world().size()));  // summed, and again by slices, and gathered
}

TEST_CASE("a maximum keeps a NaN, as ours does") {
    Engine engine(world(), native());
    const int last = world().size() - 1;
    for (const int owner : {0, last}) {
        std::vector<float> x(1000, 1.0F);
        if (world().rank() == owner) x[7] = std::numeric_limits<float>::quiet_NaN();
        engine.run(reduction(engine.group(everyone()), ReduceOp::max, x.data(), 1000));
        CHECK(std::isnan(x[7]));
        CHECK(x[8] == 1.0F);
    }
}

TEST_CASE("a scalar's sum is not the library's, whose order may differ from member to member") {
    Engine engine(world(), native());
    float x = 1.0F;
    largest_call = 0;
    engine.run(reduction(engine.group(everyone()), ReduceOp::sum, &x, 1));
    CHECK(largest_call == 0);
    CHECK(x == static_cast<float>(world().size()));
}

}  // namespace quadrille::test
