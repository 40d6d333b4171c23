#include "plan/plan.hpp"

#include "base/error.hpp"
#include "compile/verify.hpp"
#include "config/names.hpp"
#include "ir/print.hpp"
#include "plan/simulate.hpp"
#include "plan/suggest.hpp"

#include <algorithm>
#include <tuple>

namespace quadrille {
namespace {

StateBytes state_bytes(const Program& p) {
    StateBytes s;
    for (const Buffer& b : p.buffers) {
        if (b.state == StateKind::weight) s.weights += b.bytes;
        if (b.state == StateKind::master) s.masters += b.bytes;
        if (b.state == StateKind::m || b.state == StateKind::v) s.moments += b.bytes;
        if (b.state == StateKind::residual) s.residuals += b.bytes;
        if (b.state == StateKind::gradient || b.state == StateKind::stale) s.gradients += b.bytes;
    }
    return s;
}

// "weights whole, gradients 1/8, optimizer state 1/8, on 8 ranks (dp 4 x sp 2); 2 copies over dp"
std::string homes_text(const Config& config, const Grid& grid) {
    const std::int64_t ranks = grid.size(zero_axes), copies = grid.extent(Axis::replica);
    const auto part = [&](const char* what, int from_stage, OffloadTo to) {
        const std::string share = ranks == 1 || config.sharding.zero_stage < from_stage ? "whole" : fmt::format("1/{}", ranks);
        const std::string tier = to == OffloadTo::none ? "" : fmt::format(" in the {} tier", to == OffloadTo::cpu ? "host" : "nvme");
        return fmt::format("{} {}{}", what, share, tier);
    };
    return fmt::format("{}, {}, {}, on {} rank{} (dp {} x sp {}){}", part("weights", 3, config.offload.parameters),
                       part("gradients", 2, config.offload.gradients), part("optimizer state", 1, config.offload.optimizer), ranks,
                       ranks > 1 ? "s" : "", grid.extent(Axis::shard), grid.extent(Axis::sp),
                       copies > 1 ? fmt::format("; {} copies over dp", copies) : "");
}

// "topk, ratio 0.01, over dp, with error feedback"
std::string compression_text(const Config& config, const std::vector<Program>& programs) {
    for (const Program& p : programs)
        for (const Op& op : p.ops) {
            if (op.kind != Kind::compress) continue;
            const Packing& packing = p.attributes(op).packing;
            std::string s(name_of(packing.method));
            if (packing.method == PackingMethod::topk) s += fmt::format(", ratio {}", packing.ratio);
            if (packing.method == PackingMethod::qsgd) s += fmt::format(", {} bits", packing.bits);
            return s + fmt::format(", over {}, with{} error feedback", wire_name(p.grid(), p.attributes(op).over),
                                   config.compression.error_feedback ? "" : "out");
        }
    return "";
}

ProgramPlan plan_program(const Program& p, const Grid& grid) {
    ProgramPlan plan;
    plan.first[Axis::pp] = p.coordinate;
    plan.count = grid.ranks() / grid.extent(Axis::pp);
    plan.operations = static_cast<std::int64_t>(p.ops.size());
    const auto is_layer = [](const Flat& f) { return f.unit.starts_with("layers.") && !f.unit.ends_with(".lora"); };  // its adapters are a unit too
    plan.layers = std::count_if(p.flats.begin(), p.flats.end(), is_layer);
    plan.peaks = p.peaks;
    if (const std::int64_t op = p.peaks[0].op; op >= 0 && op < plan.operations) plan.peak_op = text(p, static_cast<std::size_t>(op));
    plan.states = state_bytes(p);
    for (const Flat& f : p.flats) plan.parameters += f.end;
    plan.wire = wire_bytes(p, plan.first);
    plan.uncompressed = uncompressed_wire_bytes(p, plan.first);
    for (const auto& [queue, bytes] : tier_bytes(p)) plan.copies.emplace(name_of(queue), bytes);
    return plan;
}

// Of each tier that does not fit its limit, what the fullest rank lacks.
std::string shortfall(const Compiled& c, const DeviceConfig& limits) {
    std::string s;
    for (const auto& [tier, limit, by] : {std::tuple{Tier::device, limits.memory_limit, "device.memory_limit"},
                                          {Tier::host, limits.host_memory_limit, "device.host_memory_limit"}}) {
        const auto arena = [t = static_cast<std::size_t>(tier)](const Program& p) { return p.peaks[t].arena; };
        const auto smaller = [&](const Program& a, const Program& b) { return arena(a) < arena(b); };
        const Program& most = *std::max_element(c.programs.begin(), c.programs.end(), smaller);
        if (limit == 0 || arena(most) <= limit) continue;
        Coordinate first;
        first[Axis::pp] = most.coordinate;
        s += does_not_fit(most, tier, {limit, by}, c.tables->grid().rank(first));
    }
    return s;
}

std::int64_t fullest(const Compiled& c) {
    std::int64_t most = 0;
    for (const Program& p : c.programs) most = std::max(most, p.peaks[0].arena);
    return most;
}

RecomputePlan recompute_plan(Config config, const Workspace& workspace, const Compiled& c, double hardware) {
    RecomputePlan plan;
    plan.granularity = spelling(config.recompute.granularity);
    if (config.recompute.granularity == Granularity::none) return plan;
    config.recompute.granularity = Granularity::none;
    const Compiled without = compile(config, Purpose::training, workspace);
    plan.bytes_saved = fullest(without) - fullest(c);
    plan.flops_added = hardware - hardware_flops(without, c.tables->grid());
    return plan;
}

}  // namespace

std::int64_t parameter_count(const std::vector<Parameter>& parameters, bool trained) {
    std::int64_t total = 0;
    for (const Parameter& q : parameters) {
        if (trained && !q.trained) continue;
        std::int64_t n = 1;
        for (const std::int64_t d : q.shape) n *= d;
        total += n;
    }
    return total;
}

bool fits(const Program& p, const DeviceConfig& limits) {
    const auto within = [&](Tier tier, std::int64_t limit) { return limit == 0 || p.peaks[static_cast<std::size_t>(tier)].arena <= limit; };
    return within(Tier::device, limits.memory_limit) && within(Tier::host, limits.host_memory_limit);
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
    plan.trained = parameter_count(c.programs[0].parameters, true);
    plan.ranks = grid.ranks();
    for (const Program& p : c.programs) plan.programs.push_back(plan_program(p, grid));
    plan.model_flops = model_flops(config);
    plan.hardware_flops = hardware_flops(c, grid);
    plan.recompute = recompute_plan(config, workspace, c, plan.hardware_flops);
    plan.homes = homes_text(config, grid);
    plan.compression = compression_text(config, c.programs);
    plan.staleness = config.comm.staleness;
    plan.threads = config.device.threads;
    plan.schedule = spelling(config.pipeline.schedule);
    plan.microbatches = config.train.gradient_accumulation_steps;
    for (const Order& o : c.orders) plan.orders.push_back(text(o));
    plan.bubble_fraction = simulate(c.orders, chunk_costs(c)).bubble_fraction;
    plan.memory_limit = config.device.memory_limit;
    plan.host_memory_limit = config.device.host_memory_limit;
    plan.fits = std::all_of(c.programs.begin(), c.programs.end(), [&](const Program& p) { return fits(p, config.device); });
    if (!plan.fits) plan.shortfall = shortfall(c, config.device);
    if (!plan.fits) plan.cost = step_cost(c);
    if (!plan.fits && vary) plan.suggestions = suggest(config, workspace, vary, plan.cost);
    if (programs) *programs = std::move(c.programs);
    return plan;
}

}  // namespace quadrille
