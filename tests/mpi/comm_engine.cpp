// Every kind of collective move, type, cut and odd size, several in flight over overlapping groups, against plain references
// that sum in the promised order: so equality is of bits, across members, segment sizes, message sizes and timing.
#include "mpi_main.hpp"

#include <deque>
#include <fstream>

#include "comm_moves.hpp"

namespace quadrille::test {
namespace {

constexpr Algorithm algorithms[] = {Algorithm::automatic, Algorithm::ring, Algorithm::shared, Algorithm::hierarchical, Algorithm::native};

// Automatic by times that change their mind several times, so that messages and shared memory take turns in the same places.
EngineOptions options_of(Algorithm algorithm) {
    EngineOptions options;
    options.algorithm = algorithm;
    options.pretend_nodes = algorithm == Algorithm::hierarchical ? 2 : 0;
    std::vector<MeasuredTime> times;
    double faster = 1;
    for (const std::int64_t bytes : {1, 40, 500, 3000, 20000, 200000}) {
        for (const MoveKind kind : {MoveKind::all_reduce, MoveKind::reduce_scatter, MoveKind::all_gather}) {
            times.push_back({kind, Algorithm::ring, 2, bytes, faster});
            times.push_back({kind, Algorithm::shared, 2, bytes, 1 / faster});
        }
        faster = faster == 1 ? 2 : 1 / faster;
    }
    options.times = MeasuredTimes(times);
    return options;
}

// Of an engine with these options, whose ranks are all on one machine.
NodeGrid levels_of(const EngineOptions& options, const std::vector<int>& ranks) {
    std::vector<int> nodes;
    for (const int r : ranks) nodes.push_back(r * std::max(1, options.pretend_nodes) / world().size());
    return options.algorithm == Algorithm::hierarchical && options.pretend_nodes > 0 ? arrange(nodes, 0) : NodeGrid{};
}

// All groups of a world of 1, 2, 3, 4 or 8 that this rank is in: the whole; the lines of a grid of 2s; whole planes; the whole
// in reverse. Made in the same order by all ranks.
std::vector<std::vector<int>> my_groups() {
    const int size = world().size(), rank = world().rank();
    std::vector<int> all(static_cast<std::size_t>(size));
    std::iota(all.begin(), all.end(), 0);
    std::vector<std::vector<int>> groups = {all, {rank}};
    for (int bit = 1; bit < size && size != 3; bit *= 2) {
        groups.push_back({rank & ~bit, rank | bit});
        if (size == 8) {
            std::vector<int> plane;
            for (const int r : all)
                if ((r & bit) == (rank & bit)) plane.push_back(r);
            groups.push_back(plane);
        }
    }
    if (size > 2) groups.emplace_back(all.rbegin(), all.rend());
    return groups;
}

// The nth case of a seed: the same choice for all members of its group.
void make_case(Case& c, std::uint64_t seed, int n_case, const std::vector<int>& ranks, int handle, std::int64_t largest,
               const EngineOptions& options) {
    const std::uint64_t key = random_key(seed, n_case);
    constexpr DType types[] = {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32};
    constexpr Cut cuts[] = {Cut::equal, Cut::contiguous, Cut::strided, Cut::zigzag, Cut::lopsided};
    const std::int64_t n = static_cast<std::int64_t>(ranks.size());
    const std::int64_t sizes[] = {0, 1, n - 1, n, 2 * n + 1, 257, largest - 1, largest};
    const auto size = [&](std::uint64_t draw) { return sizes[pick(key, draw, 8)]; };
    const auto cut = [&](std::uint64_t draw) { return cuts[pick(key, draw, 5)]; };
    const auto op = pick(key, 1, 4) == 0 ? ReduceOp::max : ReduceOp::sum;
    c.move.kind = static_cast<MoveKind>(pick(key, 2, 5));
    c.move.dtype = types[pick(key, 3, 4)];
    c.move.group = handle;
    c.move.priority = pick(key, 4, 2) == 0 ? Priority::urgent : Priority::bulk;
    c.name = fmt::format("case {} kind {} {} group of {}", n_case, static_cast<int>(c.move.kind), name_of(c.move.dtype), n);
    int me = 0;
    while (ranks[static_cast<std::size_t>(me)] != world().rank()) ++me;
    with_type(c.move.dtype, key, ranks, me, [&](const auto& maker) {
        std::vector<std::int64_t> counts(static_cast<std::size_t>(1 + pick(key, 5, 4)));
        for (std::size_t k = 0; k < counts.size(); ++k) counts[k] = size(10 + k);
        switch (c.move.kind) {
            case MoveKind::all_reduce: return maker.all_reduce(c, op, counts, pick(key, 6, 2) == 0);
            case MoveKind::reduce_scatter: return maker.reduce_scatter(c, op, size(7), cut(8), pick(key, 6, 2) == 0);
            case MoveKind::all_gather: return maker.all_gather(c, size(7), cut(8), pick(key, 6, 2) == 0);
            case MoveKind::all_to_all: return maker.all_to_all(c, size(7), cut(8), cut(9));
            default: return maker.ring_shift(c, counts);
        }
    }, options.algorithm == Algorithm::native, levels_of(options, ranks));
}

void check(const Case& c) {
    for (std::size_t k = 0; k < c.buffers.size(); ++k) {
        CAPTURE(c.name);
        CAPTURE(k);
        CHECK(c.buffers[k] == c.expected[k]);
    }
    CHECK(c.times.issued <= c.times.entered);
    CHECK(c.times.entered <= c.times.finished);
}

// `moves` random moves, or a third of them in a sample, over random groups, started in one order, waited for in another on each rank, some after
// others.
void run_random(std::uint64_t seed, int moves, const EngineOptions& options, std::int64_t largest) {
    const int count = QUADRILLE_SAMPLED ? moves / 3 : moves;
    Engine engine(world(), options);
    const std::vector<std::vector<int>> groups = my_groups();
    std::vector<int> handles;
    for (const std::vector<int>& ranks : groups) handles.push_back(engine.group(ranks));
    CHECK(engine.group(groups[0]) == handles[0]);
    std::deque<Case> cases;
    std::vector<Ticket> tickets;
    for (int k = 0; k < count; ++k) {
        const auto g = static_cast<std::size_t>(pick(random_key(seed, k, 99), 0, static_cast<std::int64_t>(groups.size())));
        make_case(cases.emplace_back(), seed, k, groups[g], handles[g], largest, options);
    }
    for (int k = 0; k < count; ++k) {
        std::vector<Ticket> after;
        if (k > 2 && k % 5 == 0) after = {tickets[static_cast<std::size_t>(k - 3)], Ticket()};
        Case& c = cases[static_cast<std::size_t>(k)];
        tickets.push_back(engine.start(c.move, after, &c.times));
        if (k % 7 == 6)
            engine.wait(
                tickets[static_cast<std::size_t>(pick(random_key(seed, world().rank()), static_cast<std::uint64_t>(k), k))]);
    }
    std::vector<std::size_t> order(tickets.size());
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t k = order.size(); k > 1; --k)
        std::swap(order[k - 1],
                  order[static_cast<std::size_t>(pick(random_key(seed, world().rank(), 5), k, static_cast<std::int64_t>(k)))]);
    for (const std::size_t k : order) {
        engine.wait(tickets[k]);
        CHECK(engine.done(tickets[k]));
        check(cases[k]);
    }
}

void run_every(Algorithm algorithm) {
    const EngineOptions options = options_of(algorithm);
    Engine engine(world(), options);
    const std::vector<int> all = my_groups()[0];
    const int handle = engine.group(all), me = world().rank();
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32}) {
        for (const std::int64_t count : {0, 1, 5, 1000, 70001}) {
            with_type(dtype, 11, all, me, [&](const auto& maker) {
                const auto run = [&](MoveKind kind, auto fill) {
                    Case c;
                    c.move.kind = kind;
                    c.move.dtype = dtype;
                    c.move.group = handle;
                    c.name = fmt::format("kind {} {} count {}", static_cast<int>(kind), name_of(dtype), count);
                    fill(c);
                    engine.run(c.move, &c.times);
                    check(c);
                };
                for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max})
                    for (const bool in_place : {false, true})
                        run(MoveKind::all_reduce, [&](Case& c) { maker.all_reduce(c, op, {count}, in_place); });
                for (const Cut cut : {Cut::equal, Cut::contiguous, Cut::strided, Cut::zigzag, Cut::lopsided}) {
                    for (const bool in_place : {false, true})
                        run(MoveKind::reduce_scatter, [&](Case& c) { maker.reduce_scatter(c, ReduceOp::sum, count, cut, in_place); });
                    run(MoveKind::all_gather, [&](Case& c) { maker.all_gather(c, count, cut, true); });
                    run(MoveKind::all_to_all, [&](Case& c) { maker.all_to_all(c, count, cut, Cut::zigzag); });
                }
                run(MoveKind::ring_shift, [&](Case& c) { maker.ring_shift(c, {count, 3}); });
            }, algorithm == Algorithm::native, levels_of(options, all));
        }
    }
}

}  // namespace

TEST_CASE("random moves, default sizes") {
    for (const Algorithm algorithm : algorithms) {
        run_random(1, 60, options_of(algorithm), 70001);
    }
}

TEST_CASE("random moves, tiny segments") {
    for (const Algorithm algorithm : algorithms) {
        EngineOptions options = options_of(algorithm);
        options.segment_bytes = 64;
        run_random(2, 40, options, 3001);
    }
}

TEST_CASE("random moves, few elements per message") {
    constexpr std::pair<Algorithm, std::int64_t> splits[] = {
        {Algorithm::ring, 1},      {Algorithm::ring, 7},   {Algorithm::ring, 1000},  {Algorithm::shared, 1},
        {Algorithm::shared, 1000}, {Algorithm::native, 7}, {Algorithm::native, 1000}, {Algorithm::hierarchical, 1000}};
    for (const auto& [algorithm, max_count] : splits) {
        EngineOptions options = options_of(algorithm);
        options.max_count = max_count;
        run_random(3, 25, options, max_count == 1000 ? 70001 : 701);
    }
}

TEST_CASE("random moves with a progress thread that shares its core") {
    for (const Algorithm algorithm : algorithms) {
        EngineOptions options = options_of(algorithm);
        options.compute_threads = 64;
        run_random(5, 30, options, 70001);
    }
}

TEST_CASE("every kind, type and cut once") {
    for (const Algorithm algorithm : algorithms)
        if (algorithm != Algorithm::automatic) run_every(algorithm);  // which is two of the others in turn
}

TEST_CASE("without room for shared memory groups take the ring, and say so") {
    for (const Algorithm algorithm : {Algorithm::automatic, Algorithm::shared, Algorithm::hierarchical}) {
        EngineOptions options = options_of(algorithm);
        options.shared_room = 0;
        options.pretend_nodes = 0;
        run_random(1, 20, options, 3001);
        Engine engine(world(), options);
        const Service service = engine.service(engine.group(my_groups()[0]));
        if (world().size() == 1) continue;
        CHECK(service.algorithm == Algorithm::ring);
        CHECK(service.instead == Instead::no_room);
        CHECK(service.wanted >= Engine::staging_bytes(options));
        CHECK(service.room == 0);
        CHECK(engine.memory().own == Engine::staging_bytes(options));
        CHECK(engine.memory().mapped == 0);
    }
}

TEST_CASE("room for one group alone") {
    if (world().size() < 4 || world().size() % 2 != 0) return;
    EngineOptions options = options_of(Algorithm::shared);
    options.shared_room = world().size() * (Engine::staging_bytes(options) * 3 / 2);
    Engine engine(world(), options);
    const std::vector<std::vector<int>> groups = my_groups();
    const Service first = engine.service(engine.group(groups[0])), second = engine.service(engine.group(groups[2]));
    CHECK(first.algorithm == Algorithm::shared);
    CHECK(second.instead == Instead::no_room);
    CHECK(second.room > 0);
    CHECK(engine.memory().mapped == (world().size() - 1) * Engine::staging_bytes(options));
}

// Pieces of memory that this process shares with others.
int shared_mappings() {
    std::ifstream maps("/proc/self/maps");
    std::string line;
    int count = 0;
    while (std::getline(maps, line)) count += line.find(" rw-s ") != std::string::npos;
    return count;
}

TEST_CASE("an engine gives its memory back, also where all ranks leave it by an exception") {
    if (world().size() == 1) return;
    { Engine engine(world(), options_of(Algorithm::shared)); }
    const int before = shared_mappings();
    int within = before;
    try {
        Engine engine(world(), options_of(Algorithm::shared));
        engine.group(my_groups()[0]);
        within = shared_mappings();
        throw Error(Exit::refused, "all ranks alike");
    } catch (const Error&) {
    }
    CHECK(within > before);
    CHECK(shared_mappings() == before);
}

TEST_CASE("the sum of an element does not depend on what it is bucketed with") {
    // Two buffers reduced in one pass and in two, and each cut by the same owner: equal bits by the reference in make_case;
    // here also that the bytes do not: they are those of MoveTimes' formula.
    Engine engine(world());
    const std::vector<int> all = my_groups()[0];
    const std::int64_t n = world().size(), count = 1001;
    const auto bytes_of_slice = [&](std::int64_t i) { return equal_cut(count, n, i).count * 4; };
    with_type(DType::f32, 12, all, world().rank(), [&](const auto& maker) {
        Case c;
        c.move.kind = MoveKind::all_reduce;
        c.move.group = engine.group(all);
        maker.all_reduce(c, ReduceOp::sum, {count, count}, true);
        engine.run(c.move, &c.times);
        check(c);
        const std::int64_t mine = bytes_of_slice(world().rank());
        CHECK(c.times.sent_bytes == 2 * (count * 4 - mine + (n - 1) * mine));
    });
}

}  // namespace quadrille::test
