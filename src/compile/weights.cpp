#include "compile/weights.hpp"

#include <algorithm>

namespace quadrille {

Weights::Weights(Step& step, Homes& homes, const Model& model, std::span<const Op> ops, int kept)
    : p_(step.program), homes_(homes), model_(model), ops_(ops), kept_(static_cast<std::size_t>(homes.units()), false), copies_(kept_.size()) {
    if (homes_.weights.at_hand()) {
        for (int u = 0; u < homes_.units(); ++u)
            copies_[static_cast<std::size_t>(u)].views = split(u, homes_.unit(u).weights, {Part::step, homes_.name(u), -1, -1});
        return;
    }
    choose_kept(step, kept);
    find_last_reads(step);
}

TensorId Weights::read(int parameter, std::size_t i) {
    const auto [u, segment] = homes_.at(parameter);
    Copy& copy = copies_[static_cast<std::size_t>(u)];
    if (!homes_.weights.at_hand()) {
        const Op& op = ops_[i];
        // Adapters are fetched in the stretch of work of the block that reads them.
        const NameId unit = homes_.adapters(u) ? op.unit : homes_.name(u);
        if (copy.views.empty() || copy.until < i) copy.views = fetch(u, {op.part, unit, op.microbatch, op.action});
        copy.until = std::max(copy.until, last_read_.at({u, sharing(u, op)}));
    }
    return copy.views[static_cast<std::size_t>(segment)];
}

// A unit that the backward pass does not read has nothing to stay for.
void Weights::choose_kept(const Step& step, int kept) {
    struct Reads { int unit = 0; std::size_t last_forward = 0; bool backward = false; };
    std::vector<Reads> reads;
    for (int u = 0; u < homes_.units(); ++u) reads.push_back({u, 0, false});
    for (std::size_t i = 0; i < ops_.size(); ++i)
        for (const TensorId t : p_.inputs(ops_[i]))
            if (const auto it = step.parameters.find(t); it != step.parameters.end()) {
                Reads& r = reads[static_cast<std::size_t>(homes_.at(it->second).unit)];
                if (ops_[i].part == Part::forward) r.last_forward = i;
                else r.backward = true;
            }
    std::erase_if(reads, [](const Reads& r) { return !r.backward; });
    std::sort(reads.begin(), reads.end(), [](const Reads& a, const Reads& b) { return a.last_forward > b.last_forward; });
    for (std::size_t k = 0; k < std::min(reads.size(), static_cast<std::size_t>(kept)); ++k) kept_[static_cast<std::size_t>(reads[k].unit)] = true;
}

void Weights::find_last_reads(const Step& step) {
    for (std::size_t i = 0; i < ops_.size(); ++i)
        for (const TensorId t : p_.inputs(ops_[i]))
            if (const auto it = step.parameters.find(t); it != step.parameters.end()) {
                const int u = homes_.at(it->second).unit;
                last_read_[{u, sharing(u, ops_[i])}] = i;
            }
}

std::vector<TensorId> Weights::split(int u, TensorId whole, const Where& where) {
    Attributes a;
    a.unit = u;
    std::vector<TensorId> views;
    const BufferId buffer = p_.tensors[static_cast<std::size_t>(whole)].buffer;
    for (const FlatSegment& s : homes_.flat(u).segments) {
        const Parameter& q = model_.parameters[static_cast<std::size_t>(s.parameter)];
        a.types.push_back(q.type);
        views.push_back(p_.declare(q.name, p_.tables->type(q.type), where.microbatch, buffer, s.offset));
    }
    Op op;
    op.kind = Kind::split;
    op.part = where.part;
    op.unit = where.unit;
    op.microbatch = where.microbatch;
    op.action = where.action;
    op.attributes = p_.tables->intern(a);
    p_.append(op, std::vector<TensorId>{whole}, views);
    return views;
}

std::vector<TensorId> Weights::fetch(int u, const Where& where) {
    Program::Options o;
    o.book = Book::buffers;
    o.names = {"w." + homes_.flat(u).unit};
    const TensorId here = p_.to_tier(homes_.unit(u).weights, Tier::device, where, o);
    Placement whole = p_.type(here).place;
    whole.cuts[0] = {};
    return split(u, p_.to(here, whole, where, o), where);
}

}  // namespace quadrille
