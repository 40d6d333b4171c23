#include "compile/verify_residuals.hpp"

#include "ir/table.hpp"

#include <algorithm>

namespace quadrille {
namespace {

// The power of the loss scale by which updates multiply gradients.
int update_power(const Program& p) {
    for (const Op& op : p.ops)
        if (op.kind == Kind::adamw || op.kind == Kind::sgd) return p.attributes(op).loss_scale;
    return 0;
}

}  // namespace

FlatValues before_the_step(const Program& p, TensorId t) {
    const Buffer& b = p.buffer(t);
    FlatValues list;
    if (b.unit < 0) return list;
    const Flat& flat = p.flats[static_cast<std::size_t>(b.unit)];
    if (p.type(t).place.partial_sum.has(Axis::pp) && p.coordinate != 0) {
        list.resize(flat.segments.size());
        return list;
    }
    for (const FlatSegment& s : flat.segments) {
        const std::string& parameter = p.parameters[static_cast<std::size_t>(s.parameter)].name;
        list.push_back((Hash("state") << static_cast<std::uint64_t>(b.state) << hash_text(parameter)).value());
    }
    return list;
}

void Residuals::say(std::size_t program, std::int32_t at, std::string reason) {
    faults_.push_back({programs_[program].coordinate, at, std::move(reason)});
}

FlatValues& Residuals::version(std::size_t program, int unit) {
    const auto [it, fresh] = version_.try_emplace({program, unit});
    const TensorId kept = fresh ? programs_[program].initial_state(StateKind::residual, unit) : -1;
    if (kept >= 0) it->second = before_the_step(programs_[program], kept);
    return it->second;
}

FlatValues Residuals::compress(std::size_t program, const Op& op, std::int32_t at, const FlatValues& gradient, const FlatValues* given) {
    const Program& p = programs_[program];
    const Attributes& a = p.attributes(op);
    packed_[{program, p.outputs(op)[0]}] = a.packing;
    FlatValues& now = version(program, a.unit);
    if (!given) {
        if (!now.empty()) say(program, at, "packets without what the unit's earlier ones left unsent");
        return {};
    }
    if (a.loss_scale != -update_power(p)) say(program, at, "a residual is not scaled as the step's gradients are");
    if (!(*given == now)) say(program, at, p.name(p.inputs(op)[1]) + " is not what the unit's earlier packets left unsent");
    FlatValues left;
    for (std::size_t i = 0; i < gradient.size(); ++i)
        left.push_back((Hash("unsent") << (i < now.size() ? now[i] : Value{}) << gradient[i]).value());
    return now = std::move(left);
}

void Residuals::decompress(std::size_t program, const Op& op, std::int32_t at) {
    const Program& p = programs_[program];
    const auto it = packed_.find({program, p.inputs(op)[0]});
    if (it == packed_.end() || !(it->second == p.attributes(op).packing))
        say(program, at, "packets are unpacked in another way than they were packed");
}

void Residuals::retain(std::size_t program, const Op& op, std::int32_t at, const FlatValues& before, bool by_norm) {
    const Program& p = programs_[program];
    const TensorId kept = p.initial_state(StateKind::residual, p.attributes(op).unit);
    if (kept < 0 || !(before == before_the_step(p, kept)))
        say(program, at, p.name(p.inputs(op)[0]) + " is not the unit's residual from before the step");
    if (!by_norm) say(program, at, "a residual is kept by another scalar than the gradient's norm");
}

void Residuals::same(std::size_t program, TensorId x, TensorId y) {
    if (const auto it = packed_.find({program, x}); it != packed_.end()) packed_[{program, y}] = it->second;
}

void Residuals::check_end(std::size_t program, int unit, const FlatValues& held, std::int32_t blamed) {
    const Program& p = programs_[program];
    const bool training = std::any_of(p.ops.begin(), p.ops.end(), [](const Op& op) { return op.part == Part::backward_weight; });
    const std::string& name = p.flats[static_cast<std::size_t>(unit)].unit;
    if (training && !version_.contains({program, unit}))
        return say(program, blamed, fmt::format("unit {} has a residual, and its gradient is not compressed", name));
    if (!(held == version(program, unit)))
        say(program, blamed, fmt::format("the residual of unit {} after the step is not what its packets left unsent", name));
}

}  // namespace quadrille
