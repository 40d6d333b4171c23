// Whole steps of compiled programs: losses, norms and weights on any grid are those of one rank; memory is what was predicted;
// the time categories add up.
#include "mpi_main.hpp"
#include "runtime/addresses.hpp"
#include "runtime_train.hpp"

#include <cmath>
#include <numeric>

using namespace quadrille;
using namespace quadrille::test;

namespace {

double relative(double a, double b) { return std::abs(a - b) / std::max({std::abs(a), std::abs(b), 1e-30}); }

void check_same(const Trained& grid, const Trained& one, double tolerance) {
    CHECK(grid.replicas_equal);
    for (std::size_t k = 0; k < one.steps.size(); ++k) {
        const StepResult &a = grid.steps[k], &b = one.steps[k];
        CAPTURE(k);
        CHECK(relative(a.loss, b.loss) < tolerance);
        CHECK(relative(a.grad_norm, b.grad_norm) < tolerance);
        CHECK(a.tokens == b.tokens);
        CHECK(a.updated);
        CHECK(std::accumulate(a.time.begin(), a.time.end(), 0.0) == doctest::Approx(a.seconds).epsilon(1e-9));
        CHECK(a.memory[0].bytes == std::accumulate(grid.predicted.books.begin(), grid.predicted.books.end(), std::int64_t{0}));
        CHECK(a.memory[0].books == grid.predicted.books);
        double exposed = 0;
        for (std::size_t i = 0; i < grid.wire_axes.size(); ++i) {
            CAPTURE(grid.wire_axes[i]);
            CHECK(a.sent_bytes[i] == grid.wire.at(grid.wire_axes[i]));
            CHECK(a.wire[i].busy > 0);
            CHECK(a.wire[i].busy < a.seconds);
            exposed += a.wire[i].exposed;
        }
        const double charged = at(a.time, Category::exposed_dp) + at(a.time, Category::exposed_tp) + at(a.time, Category::exposed_sp) +
                               at(a.time, Category::exposed_pp);
        CHECK(exposed == doctest::Approx(charged).epsilon(1e-9));
        CHECK(a.beside.seconds <= at(a.time, Category::compute));
    }
    if (world().rank() != 0) return;
    double worst = 0;
    for (std::size_t p = 0; p < one.parameters.size(); ++p)
        for (std::size_t i = 0; i < one.parameters[p].size(); ++i)
            worst = std::max<double>(worst, std::abs(grid.parameters[p][i] - one.parameters[p][i]));
    CHECK(worst < 20 * tolerance);
}

struct Grids { int dp, tp, pp, sp; };
std::vector<Grids> grids(int ranks) {
    constexpr int longest = QUADRILLE_SAMPLED ? 2 : 8;  // of an axis
    std::vector<Grids> out;
    for (const int dp : {1, 2, 4, 8})
        for (const int tp : {1, 2, 4})
            for (const int pp : {1, 2, 4})
                for (const int sp : {1, 2, 4})
                    if (dp * tp * pp * sp == ranks && std::max({dp, tp, pp, sp}) <= longest) out.push_back({dp, tp, pp, sp});
    return out;
}

// Rows of the table beyond the true vocabulary are zero.
void check_padding(Trainer& trainer, const Flat& flat, const FlatSegment& segment) {
    const Program& p = trainer.program();
    const Coordinate at = p.grid().coordinate(world().rank());
    const Parameter& q = p.parameters[static_cast<std::size_t>(segment.parameter)];
    for (const Op& op : p.ops) {
        if (op.kind != Kind::adamw || &p.flats[static_cast<std::size_t>(p.attributes(op).unit)] != &flat) continue;
        const std::byte* const flat = trainer.arena().data(Tier::device) + range_of(p, at, p.inputs(op)[0]).begin;
        const auto* table = reinterpret_cast<const float*>(flat) + segment.offset;
        const std::vector<std::int64_t> rows = indices(p.grid(), p.tables->type(q.type), 0, at);
        for (std::size_t r = 0; r < rows.size(); ++r) {
            const float* row = table + static_cast<std::int64_t>(r) * q.shape[1];
            CHECK(std::all_of(row, row + q.shape[1], [](float x) { return x == 0; }) == (rows[r] >= q.shape[0]));
        }
    }
}

}  // namespace

TEST_CASE("first weights are the same bits on every grid, each parameter its own, padding and moments zero") {
    const Config base = tiny(false);
    Trainer one(world(), serial(base));
    for (const Grids& g : grids(world().size())) {
        Trainer grid(world(), on_grid(base, g.dp, g.tp, g.pp, g.sp));
        const Program& p = grid.program();
        for (std::size_t i = 0; i < p.parameters.size(); ++i) {
            const std::vector<float> a = grid.gather(static_cast<int>(i), StateKind::weight), b = one.gather(static_cast<int>(i), StateKind::weight);
            const std::vector<float> m = grid.gather(static_cast<int>(i), StateKind::m);
            if (world().rank() != 0) continue;
            CHECK(a == b);
            CHECK(std::all_of(m.begin(), m.end(), [](float x) { return x == 0; }));
            if (p.parameters[i].init != Init::normal) continue;
            double squares = 0;
            for (const float x : a) squares += x * x;
            CHECK(std::sqrt(squares / static_cast<double>(a.size())) == doctest::Approx(p.parameters[i].init_std).epsilon(0.2));
        }
        for (const Flat& f : p.flats)
            for (const FlatSegment& s : f.segments)
                if (p.parameters[static_cast<std::size_t>(s.parameter)].name == "embedding.weight") check_padding(grid, f, s);
    }
}

TEST_CASE("every grid gives one rank's losses, norms and weights") {
    for (const bool llama : {false, true}) {
        const Config base = tiny(llama);
        const Trained one = Trainer(world(), serial(base)).train(3);
        for (const Grids& g : grids(world().size())) {
            CAPTURE(llama);
            CAPTURE(g.dp);
            CAPTURE(g.tp);
            CAPTURE(g.pp);
            CAPTURE(g.sp);
            check_same(Trainer(world(), on_grid(base, g.dp, g.tp, g.pp, g.sp)).train(3), one, 2e-5);
        }
    }
}

TEST_CASE("an absurd weight decay leaves norms where Adam brings them, on every grid and in every bucket") {
    for (const bool llama : {false, true}) {
        Config base = tiny(llama);
        base.optimizer.weight_decay = 10;
        const Trained one = Trainer(world(), serial(base)).train(5);
        for (const Grids& g : grids(world().size())) {
            Config c = on_grid(base, g.dp, g.tp, g.pp, g.sp);
            c.comm.bucket_size = 1;
            Trainer trainer(world(), c);
            const Trained grid = trainer.train(5);
            check_same(grid, one, 5e-5);
            for (std::size_t p = 0; p < grid.parameters.size() && world().rank() == 0; ++p) {
                const Parameter& q = trainer.program().parameters[p];
                CAPTURE(q.name);
                CHECK((q.init == Init::normal) == q.decays);
                if (q.init != Init::ones) continue;
                for (const float x : grid.parameters[p]) CHECK(std::abs(x - 1) <= 0.006);  // decayed, it would be near 0.95
            }
        }
    }
}

TEST_CASE("the evaluation program finds the training program's weights, and leaves the state alone") {
    for (const Grids& g : grids(world().size())) {
        const Config c = on_grid(tiny(false), g.dp, g.tp, g.pp, g.sp);
        Trainer plain(world(), c), evaluated(world(), c);
        const Trained usual = plain.train(2);
        const StepResult first = evaluated.evaluate(0);
        CHECK(first.loss == usual.steps[0].loss);
        CHECK(first.tokens == usual.steps[0].tokens);
        CHECK(!first.updated);
        evaluated.step(0);
        CHECK(evaluated.evaluate(1).loss == usual.steps[1].loss);
        CHECK(evaluated.step(1).grad_norm == usual.steps[1].grad_norm);
    }
}

TEST_CASE("gathered gradients have the norm that the step reports") {
    for (const bool llama : {false, true})
        for (const Grids& g : grids(world().size())) {
            Trainer trainer(world(), on_grid(tiny(llama), g.dp, g.tp, g.pp, g.sp));
            const StepResult s = trainer.step(0);
            double squares = 0;
            for (std::size_t p = 0; p < trainer.program().parameters.size(); ++p)
                for (const float x : trainer.gather(static_cast<int>(p), StateKind::gradient)) squares += static_cast<double>(x) * x;
            if (world().rank() == 0) CHECK(std::sqrt(squares) == doctest::Approx(s.grad_norm).epsilon(1e-6));
            CHECK(s.clip_factor == doctest::Approx(std::min(1.0, 0.5 / s.grad_norm)).epsilon(1e-5));
        }
}
