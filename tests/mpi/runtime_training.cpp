// Whole steps of compiled programs: losses, norms and weights on any grid are those of one rank; memory is what was predicted;
// the time categories add up.
#include "mpi_main.hpp"
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
    }
    if (world().rank() != 0) return;
    double worst = 0;
    for (std::size_t p = 0; p < one.parameters.size(); ++p)
        for (std::size_t i = 0; i < one.parameters[p].size(); ++i) worst = std::max<double>(worst, std::abs(grid.parameters[p][i] - one.parameters[p][i]));
    CHECK(worst < 20 * tolerance);
}

struct Grids { int dp, tp, pp, sp; };
std::vector<Grids> grids(int ranks) {
    std::vector<Grids> out;
    for (const int dp : {1, 2, 4, 8})
        for (const int tp : {1, 2, 4})
            for (const int pp : {1, 2, 4})
                for (const int sp : {1, 2, 4})
                    if (dp * tp * pp * sp == ranks) out.push_back({dp, tp, pp, sp});
    return out;
}

}  // namespace

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
