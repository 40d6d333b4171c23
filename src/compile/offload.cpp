#include "compile/offload.hpp"

#include <algorithm>
#include <map>

namespace quadrille {
namespace {

constexpr std::int32_t none = -1;

struct Use {
    std::int32_t made = none, last_forward = none, first_backward = none;
};

bool backward(const Op& op) { return op.part == Part::backward_input || op.part == Part::backward_weight; }

class Offload {
  public:
    Offload(Program& p, Tier tier) : p_(p), tier_(tier), ops_(std::move(p.ops)), uses_(p.tensors.size()) { p_.ops.clear(); }

    void run() {
        find_uses();
        number_groups();
        std::multimap<std::int32_t, TensorId> stored, loaded;  // behind, in front of this op
        for (std::size_t t = 0; t < uses_.size(); ++t) {
            if (!leaves(static_cast<TensorId>(t))) continue;
            stored.emplace(uses_[t].last_forward, static_cast<TensorId>(t));
            loaded.emplace(uses_[t].first_backward, static_cast<TensorId>(t));
        }
        for (std::int32_t i = 0; i < static_cast<std::int32_t>(ops_.size()); ++i) {
            for (auto [it, end] = loaded.equal_range(i); it != end; ++it) load(it->second, ops_[static_cast<std::size_t>(i)]);
            keep(ops_[static_cast<std::size_t>(i)]);
            for (auto [it, end] = stored.equal_range(i); it != end; ++it) store(it->second, ops_[static_cast<std::size_t>(i)]);
        }
    }

  private:
    const Tensor& tensor(TensorId t) const { return p_.tensors[static_cast<std::size_t>(t)]; }

    void find_uses() {
        sharers_.assign(p_.buffers.size(), {});
        for (std::int32_t i = 0; i < static_cast<std::int32_t>(ops_.size()); ++i) {
            const Op& op = ops_[static_cast<std::size_t>(i)];
            for (const TensorId t : p_.outputs(op)) uses_[static_cast<std::size_t>(t)].made = i;
            for (const TensorId t : p_.inputs(op)) {
                Use& u = uses_[static_cast<std::size_t>(t)];
                if (!backward(op)) u.last_forward = i;
                else if (u.first_backward == none) u.first_backward = i;
            }
        }
        for (std::size_t t = 0; t < uses_.size(); ++t) sharers_[static_cast<std::size_t>(p_.tensors[t].buffer)].push_back(static_cast<TensorId>(t));
    }

    // The place of each op in the sequence of (unit, action); ops of the step as a whole belong to the group around them.
    void number_groups() {
        group_.resize(ops_.size());
        NameId unit = none;
        std::int32_t action = none, number = 0;
        for (std::size_t i = 0; i < ops_.size(); ++i) {
            if (ops_[i].part != Part::step && (ops_[i].unit != unit || ops_[i].action != action)) {
                unit = ops_[i].unit;
                action = ops_[i].action;
                ++number;
            }
            group_[i] = number;
        }
    }

    bool leaves(TensorId t) const {
        const Use& u = uses_[static_cast<std::size_t>(t)];
        const TensorType& type = p_.type(t);
        if (tensor(t).microbatch < 0 || u.made == none || u.last_forward == none || u.first_backward == none) return false;
        if (ops_[static_cast<std::size_t>(u.made)].kind == Kind::load || u.last_forward > u.first_backward) return false;
        if (type.tier != Tier::device || tensor(t).offset != 0 || !tensor(t).slice_axes.empty() || type.covers != 0) return false;
        if (p_.tables->bytes(tensor(t).type) < least_bytes) return false;
        const auto used_later = [&u](const Use& x) { return std::max({x.made, x.last_forward, x.first_backward}) > u.made; };
        for (const TensorId other : sharers_[static_cast<std::size_t>(tensor(t).buffer)])
            if (other != t && used_later(uses_[static_cast<std::size_t>(other)])) return false;
        return group_[static_cast<std::size_t>(u.first_backward)] - group_[static_cast<std::size_t>(u.last_forward)] > 2;
    }

    Program::Options named(TensorId t) const {
        Program::Options o;
        o.names = {p_.tables->name(tensor(t).name)};
        return o;
    }

    void store(TensorId t, const Op& last) {
        home_[t] = p_.to_tier(t, tier_, {Part::forward, last.unit, tensor(t).microbatch, last.action}, named(t));
    }
    void load(TensorId t, const Op& first) {
        const Where where = {first.part, first.unit, tensor(t).microbatch, first.action};
        again_[t] = p_.to_tier(home_.at(t), Tier::device, where, named(t));
    }

    void keep(const Op& op) {
        if (backward(op))
            for (std::uint32_t k = op.first; k < op.first + op.inputs; ++k)
                if (const auto it = again_.find(p_.operands[k]); it != again_.end()) p_.operands[k] = it->second;
        p_.ops.push_back(op);
    }

    static constexpr std::int64_t least_bytes = 4096;  // a smaller tensor costs more to move than to keep

    Program& p_;
    const Tier tier_;
    const std::vector<Op> ops_;
    std::vector<Use> uses_;
    std::vector<std::vector<TensorId>> sharers_;
    std::vector<std::int32_t> group_;
    std::map<TensorId, TensorId> home_, again_;  // where it is meanwhile; what is loaded
};

}  // namespace

void offload_activations(Program& p, Tier tier) {
    if (tier != Tier::device) Offload(p, tier).run();
}

}  // namespace quadrille
