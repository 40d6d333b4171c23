// Every algorithm of the collectives against float64 sums, for any number of ranks: sizes with odd remainders up to 5 million, every type;
// the same bits from all that promise the ring's order, however often and whoever comes late.
#include "mpi_main.hpp"

#include <cmath>
#include <limits>

#include "comm/evidence.hpp"
#include "comm_moves.hpp"

namespace quadrille::test {
namespace {

constexpr Algorithm algorithms[] = {Algorithm::ring, Algorithm::shared, Algorithm::hierarchical, Algorithm::native};
constexpr MoveKind kinds[] = {MoveKind::all_reduce, MoveKind::reduce_scatter, MoveKind::all_gather};
constexpr std::int64_t million5 = QUADRILLE_SAMPLED ? 500'003 : 5'000'003;
constexpr int repeats = QUADRILLE_SAMPLED ? 6 : 20;

std::vector<int> everyone() {
    std::vector<int> all(static_cast<std::size_t>(world().size()));
    std::iota(all.begin(), all.end(), 0);
    return all;
}

// Hierarchical: as many pretended nodes as give two levels where the number of ranks allows it.
EngineOptions options_of(Algorithm algorithm) {
    EngineOptions options;
    options.algorithm = algorithm;
    if (algorithm == Algorithm::hierarchical) options.pretend_nodes = world().size() % 2 == 0 ? 2 : 3;
    return options;
}

double unit_roundoff(DType dtype) {
    switch (dtype) {
        case DType::bf16: return 0x1p-8;
        case DType::f16: return 0x1p-11;
        case DType::f32: return 0x1p-24;
        case DType::f64: return 0x1p-53;
        default: return 0;
    }
}

// One collective over all ranks of `count` elements of the whole buffer, and what it leaves.
template <class T>
struct Run {
    Maker<T> maker;
    MoveKind kind;
    std::int64_t count;
    Move move;
    std::vector<T> in, out;

    Run(const Maker<T>& m, MoveKind k, std::int64_t whole, int group) : maker(m), kind(k), count(whole) {
        const Extent mine = equal_cut(count, m.n(), m.me);
        const bool gathers = kind == MoveKind::all_gather, scatters = kind == MoveKind::reduce_scatter;
        for (std::int64_t i = 0; i < (gathers ? mine.count : count); ++i) in.push_back(m.at(m.me, gathers ? mine.offset + i : i));
        out = m.blank(scatters ? mine.count : count);
        move.kind = kind;
        move.dtype = m.dtype;
        move.group = group;
        move.priority = Priority::bulk;
        move.segments = {{in.data(), out.data(), count}};
    }

    // The error bound of a sum of n terms in any order, and of its roundings (Higham 2002, section 4.2).
    bool close(std::int64_t i, std::int64_t element) const {
        const auto got = static_cast<double>(static_cast<float_of<T>>(out[static_cast<std::size_t>(i)]));
        if (kind == MoveKind::all_gather) {
            int owner = 0;
            while (element >= equal_cut(count, maker.n(), owner).offset + equal_cut(count, maker.n(), owner).count) ++owner;
            return got == as_double(owner, element);
        }
        double sum = 0, magnitude = 0;
        for (int member = 0; member < maker.n(); ++member) {
            const double x = as_double(member, element);
            sum += x;
            magnitude += std::abs(x);
        }
        return std::abs(got - sum) <= maker.n() * unit_roundoff(maker.dtype) * magnitude;
    }
    // Every stride-th element.
    std::int64_t wrong(std::int64_t stride) const {
        const std::int64_t first = kind == MoveKind::reduce_scatter ? equal_cut(count, maker.n(), maker.me).offset : 0;
        std::int64_t bad = 0;
        for (std::int64_t i = 0; i < static_cast<std::int64_t>(out.size()); i += stride) bad += !close(i, first + i);
        return bad;
    }

  private:
    template <class X>
    using float_of = std::conditional_t<HalfWidth<X>, float, X>;
    double as_double(int member, std::int64_t i) const { return static_cast<double>(static_cast<float_of<T>>(maker.at(member, i))); }
};

void wait_about(double seconds) {
    const double end = now() + seconds;
    while (now() < end) {
    }
}

// `repeats` times by one and the other, each time with other delays before each rank begins, and other segments and messages: the same bits.
void check_repeats(Algorithm one, Algorithm other) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
        with_type(dtype, 23, everyone(), world().rank(), [&](const auto& maker) {
            using T = typename decltype(maker.blank(0))::value_type;
            std::vector<std::vector<T>> first;
            for (int repeat = 0; repeat < repeats; ++repeat) {
                EngineOptions options = options_of(repeat % 2 == 0 ? one : other);
                options.segment_bytes = repeat % 3 == 0 ? 4096 : 256 << 10;
                options.max_count = repeat % 5 == 0 ? 1000 : 0;
                Engine engine(world(), options);
                const int group = engine.group(everyone());
                std::vector<Run<T>> runs;
                std::vector<Ticket> tickets;
                for (const MoveKind kind : kinds) runs.emplace_back(maker, kind, 30011, group);
                for (const Run<T>& run : runs) {
                    const std::uint64_t key = random_key(repeat, world().rank());
                    wait_about(1e-5 * static_cast<double>(pick(key, static_cast<std::uint64_t>(run.kind), 60)));
                    tickets.push_back(engine.start(run.move));
                }
                for (const Ticket& ticket : tickets) engine.wait(ticket);
                for (std::size_t k = 0; k < runs.size(); ++k) {
                    if (repeat == 0) first.push_back(runs[k].out);
                    INFO("repeat ", repeat, " kind ", static_cast<int>(runs[k].kind));
                    CHECK(std::memcmp(first[k].data(), runs[k].out.data(), first[k].size() * sizeof(T)) == 0);
                }
            }
        });
    }
}

}  // namespace

TEST_CASE("every algorithm, kind, type and size against a float64 sum") {
    for (const Algorithm algorithm : algorithms) {
        Engine engine(world(), options_of(algorithm));
        const int group = engine.group(everyone());
        for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32}) {
            for (const std::int64_t count : {0, 1, 2, 13, 1000, 65537}) {
                with_type(dtype, 21, everyone(), world().rank(), [&](const auto& maker) {
                    for (const MoveKind kind : kinds) {
                        Run run(maker, kind, count, group);
                        engine.run(run.move);
                        INFO(static_cast<int>(algorithm), " kind ", static_cast<int>(kind), " ", name_of(dtype), " count ", count);
                        CHECK(run.wrong(1) == 0);
                    }
                });
            }
        }
    }
}

// So that the watchdog does not take a long one for a stall.
TEST_CASE("a move of many segments beats all the while") {
    if (world().size() == 1) return;
    for (const Algorithm algorithm : algorithms) {
        EngineOptions options = options_of(algorithm);
        options.segment_bytes = 4096;
        options.max_count = 1000;
        Engine engine(world(), options);
        const int group = engine.group(everyone());
        with_type(DType::f32, 24, everyone(), world().rank(), [&](const auto& maker) {
            for (const MoveKind kind : kinds) {
                Run run(maker, kind, 65537, group);
                const std::uint64_t before = engine.evidence().page().pulse.load();
                engine.run(run.move);
                INFO(static_cast<int>(algorithm), " kind ", static_cast<int>(kind));
                CHECK(engine.evidence().page().pulse.load() - before >= 8);
            }
        });
    }
}

TEST_CASE("five million elements") {
    if (world().size() > 4) return;  // more ranks bring nothing new to long slices
    for (const Algorithm algorithm : algorithms) {
        Engine engine(world(), options_of(algorithm));
        const int group = engine.group(everyone());
        with_type(DType::f32, 22, everyone(), world().rank(), [&](const auto& maker) {
            for (const MoveKind kind : kinds) {
                Run run(maker, kind, million5, group);
                engine.run(run.move);
                INFO(static_cast<int>(algorithm), " kind ", static_cast<int>(kind));
                CHECK(run.wrong(101) == 0);
            }
        });
    }
}

TEST_CASE("time and again the same bits from ring and shared memory, whoever comes late") { check_repeats(Algorithm::ring, Algorithm::shared); }

TEST_CASE("time and again the same bits from two levels") { check_repeats(Algorithm::hierarchical, Algorithm::hierarchical); }

}  // namespace quadrille::test
