#include "compile/homes.hpp"

#include "base/rounding.hpp"

#include <algorithm>
#include <set>

namespace quadrille {
namespace {

// Parameters whose gradient is Partial over tp. Asked of the chunks, not of a step, so that evaluation, which has no gradients, lays the
// weights out as training does.
std::set<int> partial_over_tensor(const Model& model) {
    std::set<int> out;
    for (const Chunk& chunk : model.chunks)
        for (const auto& [t, g] : chunk.weight_gradients)
            if (!(chunk.program.type(t).place.partial() & tensor_axes).empty()) out.insert(g.parameter);
    return out;
}

// Units of this coordinate, and their parameters, in the order in which the model names them.
std::vector<std::pair<std::string, std::vector<int>>> units_of(const Step& step, const Model& model) {
    std::set<int> here;
    for (const auto& [t, index] : step.parameters) here.insert(index);
    std::vector<std::pair<std::string, std::vector<int>>> out;
    for (const int index : here) {
        const std::string& unit = model.parameters[static_cast<std::size_t>(index)].unit;
        auto it = std::find_if(out.begin(), out.end(), [&](const auto& u) { return u.first == unit; });
        if (it == out.end()) it = out.insert(out.end(), {unit, {}});
        it->second.push_back(index);
    }
    return out;
}

Packing packing_of(const CompressionConfig& c) {
    Packing p;
    switch (c.method) {
        case CompressionMethod::none: break;
        case CompressionMethod::bf16: p.method = PackingMethod::bf16; break;
        case CompressionMethod::fp16: p.method = PackingMethod::fp16; break;
        case CompressionMethod::topk: p = {PackingMethod::topk, c.ratio, 0}; break;
        case CompressionMethod::qsgd: p = {PackingMethod::qsgd, 0, c.bits}; break;
    }
    return p;
}

}  // namespace

Tier tier_of(OffloadTo to) { return to == OffloadTo::none ? Tier::device : to == OffloadTo::cpu ? Tier::host : Tier::nvme; }

Homes::Homes(Step& step, const Model& model, const Config& config) : p_(step.program), model_(model), config_(config) {
    slices = Cuts::along(p_.grid(), zero_axes);
    packing = packing_of(config.compression);
    if (packing.method != PackingMethod::none && !p_.grid().real(data_axes).empty())
        exchanged = p_.grid().real(p_.grid().extent(Axis::replica) > 1 ? AxisSet(Axis::replica) : zero_axes);
    const std::int64_t stage = config.sharding.zero_stage;
    const OffloadConfig& offload = config.offload;
    optimizer = {stage >= 1 ? slices : Cuts{}, tier_of(offload.optimizer)};
    gradients = {stage >= 2 ? slices : Cuts{}, tier_of(offload.gradients)};
    weights = {stage >= 3 ? slices : Cuts{}, tier_of(offload.parameters)};
    const std::set<int> partial = partial_over_tensor(model);
    for (auto& [unit, indices] : units_of(step, model)) {
        // Those Partial over tp come first in their unit, so that they are reduced in one call.
        std::stable_partition(indices.begin(), indices.end(), [&](int i) { return partial.contains(i); });
        add_flat(unit, indices);
    }
    for (std::size_t u = 0; u < p_.flats.size(); ++u) declare_state(static_cast<int>(u), step.training);
}

void Homes::add_flat(const std::string& unit, std::vector<int> indices) {
    Flat flat;
    flat.unit = unit;
    flat.tied = unit == "tied" && p_.grid().extent(Axis::pp) > 1;
    for (const int index : indices) {
        const std::int64_t count = p_.tables->count(model_.parameters[static_cast<std::size_t>(index)].type);
        at_[index] = {static_cast<int>(p_.flats.size()), static_cast<int>(flat.segments.size())};
        flat.segments.push_back({index, flat.end, count});
        flat.end += count;
    }
    flat.length = aligned_up(flat.end, flat_block * p_.grid().size(zero_axes | exchanged));
    p_.flats.push_back(flat);
}

TensorType Homes::flat_type(int u, DType dtype, Book book, const Kept& kept) const {
    TensorType t({flat(u).length}, dtype, {}, book);
    t.place.cuts[0] = kept.cut;
    t.tier = kept.tier;
    t.place.varies = p_.grid().real(tensor_axes);
    t.place.holders = flat(u).tied ? Holders::ends : Holders::own;
    return t;
}

// As the unit's gradient when it is compressed.
TensorType Homes::residual_type(int u) const {
    const bool copies = exchanged.has(Axis::replica);
    TensorType t = flat_type(u, DType::f32, Book::optimizer, {copies ? slices : Cuts{}, optimizer.tier});
    t.place.partial_sum = exchanged;
    if (flat(u).tied) t.place.partial_sum |= Axis::pp;
    return t;
}

// A whole step's sum on this rank alone.
TensorType Homes::stale_type(int u) const {
    TensorType t = flat_type(u, model_.weight_gradient, Book::gradients, gradients);
    t.place.partial_sum = p_.grid().real(data_axes | AxisSet(Axis::sp));
    if (flat(u).tied) t.place.partial_sum |= Axis::pp;
    t.covers = p_.tables->covers(Cover::complete(static_cast<int>(config_.train.gradient_accumulation_steps), 1));
    return t;
}

void Homes::declare_state(int u, bool training) {
    const auto state = [&](StateKind kind, const TensorType& t) {
        const BufferId b = p_.add_state(kind, u, t);
        return p_.declare(p_.tables->name(p_.buffers[static_cast<std::size_t>(b)].name), t, -1, b);
    };
    const TensorType fp32 = flat_type(u, DType::f32, Book::optimizer, optimizer);
    UnitState unit;
    unit.weights = state(StateKind::weight, flat_type(u, model_.activation, Book::weights, weights));
    if (!trained(u)) {
        units_.push_back(unit);
        return;
    }
    if (model_.activation != DType::f32) unit.master = state(StateKind::master, fp32);
    if (config_.optimizer.type == OptimizerType::adamw) {
        unit.m = state(StateKind::m, fp32);
        unit.v = state(StateKind::v, fp32);
    }
    if (compressed(u) && config_.compression.error_feedback) unit.residual = unit.unsent = state(StateKind::residual, residual_type(u));
    if (config_.comm.staleness > 0) {
        unit.stale = state(StateKind::stale, stale_type(u));
        unit.gradient = p_.tensor(unit.stale).buffer;
    } else if (training) unit.gradient = p_.add_state(StateKind::gradient, u, flat_type(u, model_.weight_gradient, Book::gradients, gradients));
    units_.push_back(unit);
}

}  // namespace quadrille
