#include "plan/plan.hpp"

#include "base/error.hpp"
#include "compile/verify.hpp"
#include "config/names.hpp"
#include "plan/simulate.hpp"
#include "plan/suggest.hpp"

#include <algorithm>

namespace quadrille {
namespace {

StateBytes state_bytes(const Program& p) {
    StateBytes s;
    for (const Buffer& b : p.buffers) {
        const char letter = p.tables->name(b.name).empty() ? ' ' : p.tables->name(b.name)[0];
        if (b.persistent && b.book == Book::weights) s.weights += b.bytes;
        if (b.persistent && b.book == Book::optimizer) (letter == 'P' ? s.masters : s.moments) += b.bytes;
        if (b.book == Book::gradients) s.gradients += b.bytes;
    }
    return s;
}

// FLOPs of the parts of each chunk, from the ops of its first microbatch.
std::vector<ActionCosts> chunk_costs(const Compiled& c) {
    std::size_t chunks = 0;
    for (const Order& o : c.orders)
        for (const Action& a : o) chunks = std::max(chunks, static_cast<std::size_t>(a.chunk) + 1);
    std::vector<ActionCosts> costs(chunks, ActionCosts{0, 0, 0});
    for (const Program& p : c.programs) {
        const Order& order = c.orders[static_cast<std::size_t>(p.coordinate)];
        for (const Op& op : p.ops) {
            if (op.action < 0 || op.microbatch != 0) continue;
            ActionCosts& cost = costs[static_cast<std::size_t>(order[static_cast<std::size_t>(op.action)].chunk)];
            const double n = flops(p, op);
            if (op.part == Part::forward) cost.forward += n;
            if (op.part == Part::backward_input) cost.backward_input += n;
            if (op.part == Part::backward_weight) cost.backward_weight += n;
        }
    }
    return costs;
}

ProgramPlan plan_program(const Program& p, const Grid& grid) {
    ProgramPlan plan;
    plan.first[Axis::pp] = p.coordinate;
    plan.count = grid.ranks() / grid.extent(Axis::pp);
    plan.operations = static_cast<std::int64_t>(p.ops.size());
    plan.peaks = p.peaks;
    plan.states = state_bytes(p);
    plan.wire = wire_bytes(p, plan.first);
    return plan;
}

}  // namespace

std::int64_t parameter_count(const std::vector<Parameter>& parameters) {
    std::int64_t total = 0;
    for (const Parameter& q : parameters) {
        std::int64_t n = 1;
        for (const std::int64_t d : q.shape) n *= d;
        total += n;
    }
    return total;
}

const TierPeak& higher_peak(const TierPeak& a, const TierPeak* b) { return b && b->arena - b->packing > a.arena - a.packing ? *b : a; }

Plan make_plan(const Config& config, const Workspace& workspace, const Variation& vary, std::vector<Program>* programs) {
    Plan plan;
    Compiled c;
    try {
        c = compile(config, Purpose::training, workspace);
    } catch (const TypingError& e) {
        throw Error(Exit::refused, std::string("the model does not fit the grid: ") + e.what());
    }
    require_sound(c.programs, compile(serial(config), Purpose::training, {}).programs[0]);
    const Grid& grid = c.tables->grid();
    plan.parameters = parameter_count(c.programs[0].parameters);
    plan.ranks = grid.ranks();
    for (const Program& p : c.programs) plan.programs.push_back(plan_program(p, grid));
    plan.model_flops = model_flops(config);
    plan.hardware_flops = hardware_flops(c, grid);
    plan.schedule = spelling(config.pipeline.schedule);
    plan.microbatches = config.train.gradient_accumulation_steps;
    for (const Order& o : c.orders) plan.orders.push_back(text(o));
    plan.bubble_fraction = simulate(c.orders, chunk_costs(c)).bubble_fraction;
    plan.memory_limit = config.device.memory_limit;
    for (const ProgramPlan& p : plan.programs) plan.fits = plan.fits && (plan.memory_limit == 0 || p.peaks[0].arena <= plan.memory_limit);
    if (!plan.fits && vary) plan.suggestions = suggest(config, workspace, vary);
    if (programs) *programs = std::move(c.programs);
    return plan;
}

}  // namespace quadrille
