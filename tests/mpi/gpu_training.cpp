// Training on the emulated GPU, with messages through host memory, has the CPU's numbers, in memory that is measured as planned: kernels and copies
// run on streams in any order that is allowed, and a wait that is missing shows as another result.
#include "cuda/device.hpp"
#include "mpi_main.hpp"
#include "runtime_train.hpp"
#include "sampled.hpp"

#include <cmath>
#include <functional>

using namespace quadrille;
using namespace quadrille::test;

namespace {

On gpu() {
    return {std::make_shared<CudaKernels>(nullptr), [] { return std::make_unique<CudaDevice>(0); }};
}

// Losses and norms, relative.
void check_near(double got, double expected, double tolerance) { CHECK(std::fabs(got - expected) <= tolerance * std::fabs(expected)); }

// In memory that is poisoned behind each last use.
void check_same(const Config& c, double tolerance) {
    const Trained cpu = Trainer(world(), c).train(3), got = Trainer(world(), c, gpu(), 1, true, true).train(3);
    CHECK(got.replicas_equal);
    for (std::size_t k = 0; k < cpu.steps.size(); ++k) {
        check_near(got.steps[k].loss, cpu.steps[k].loss, tolerance);
        check_near(got.steps[k].grad_norm, cpu.steps[k].grad_norm, 20 * tolerance);
        CHECK(got.steps[k].tokens == cpu.steps[k].tokens);
        CHECK(got.steps[k].updated);
    }
}

struct Technique {
    const char* name;
    double tolerance;
    std::function<bool(Config&)> make;  // false: there is nothing of it on this grid
};
const std::vector<Technique> techniques = {
    {"plain", 1e-5, [](Config&) { return true; }},
    {"bf16, megatron", 3e-3, [](Config& c) { return c.train.precision = Precision::bf16, c.tensor.sequence_parallel = c.grid.tp > 1, true; }},
    {"fp16, full recompute, dropout", 1e-3,
     [](Config& c) {
         c.train.precision = Precision::fp16;
         c.recompute.granularity = Granularity::full;
         c.model.hidden_dropout = 0.1;
         return true;
     }},
    {"stage 1", 1e-5, [](Config& c) { return c.sharding.zero_stage = 1, c.comm.bucket_size = 20000, c.grid.dp > 1; }},
    {"stage 2", 1e-5, [](Config& c) { return c.sharding.zero_stage = 2, c.comm.bucket_size = 20000, c.grid.dp > 1; }},
    {"stage 3", 1e-5, [](Config& c) { return c.sharding.zero_stage = 3, c.grid.dp > 1; }},
    {"ulysses", 1e-5, [](Config& c) { return c.sequence.method = SequenceMethod::ulysses, c.grid.sp > 1; }},
    {"zero-bubble", 1e-5, [](Config& c) { return c.pipeline.schedule = Schedule::zero_bubble, c.grid.pp > 1; }},
    {"optimizer and gradients in host memory", 1e-5,
     [](Config& c) { return c.offload.optimizer = c.offload.gradients = OffloadTo::cpu, true; }},
    {"activations and parameters in host memory", 1e-5,
     [](Config& c) { return c.offload.parameters = c.offload.activations = OffloadTo::cpu, true; }},
};

}  // namespace

TEST_CASE("every technique trains on a GPU as on the CPU") {
    const std::vector<Axes> grids = some_grids(world().size());
    std::size_t turn = 0;
    for (const Technique& technique : sampled(techniques, 5)) {
        for (std::size_t k = 0; k < grids.size(); ++k) {
            const Axes& g = grids[(turn + k) % grids.size()];
            Config c = on_grid(tiny(turn % 2 == 0), g.dp, g.tp, g.pp, g.sp);
            if (!technique.make(c)) continue;
            CAPTURE(technique.name);
            CAPTURE(g.dp);
            CAPTURE(g.tp);
            CAPTURE(g.pp);
            CAPTURE(g.sp);
            check_same(c, technique.tolerance);
            break;
        }
        ++turn;
    }
}
