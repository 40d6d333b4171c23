#include "compile/differentiate.hpp"

#include "ir/gradient.hpp"

#include <map>

namespace quadrille {
namespace {

class Backward {
  public:
    Backward(Chunk& chunk, const Model& model) : chunk_(chunk), p_(chunk.program), weight_gradient_(model.weight_gradient) {}

    void run() {
        forward_.assign(p_.ops.begin(), p_.ops.end());
        find_tracked();
        TensorType seed = p_.type(chunk_.result);
        chunk_.seed = p_.declare("seed", seed.placed(seed.place.whole()).in(Book::buffers));
        found_[chunk_.result] = {chunk_.seed};
        for (std::size_t i = forward_.size(); i-- > 0;) step(forward_[i]);
        if (chunk_.input >= 0) chunk_.input_gradient = settled(chunk_.input, forward_[0].unit);
    }

  private:
    bool tracked(TensorId t) const { return tracked_[static_cast<std::size_t>(t)]; }

    // A tensor is tracked if a parameter or the chunk's input reaches it through ops that have gradients.
    void find_tracked() {
        tracked_.assign(p_.tensors.size(), false);
        maker_.assign(p_.tensors.size(), Kind::load);
        for (const auto& [t, index] : chunk_.parameters) tracked_[static_cast<std::size_t>(t)] = true;
        if (chunk_.input >= 0) tracked_[static_cast<std::size_t>(chunk_.input)] = true;
        for (const Op& op : forward_) {
            bool any = false;
            for (const TensorId t : p_.inputs(op)) any = any || tracked(t);
            for (const TensorId t : p_.outputs(op)) {
                tracked_[static_cast<std::size_t>(t)] = any && has_gradient(op.kind);
                maker_[static_cast<std::size_t>(t)] = op.kind;
            }
        }
    }

    void step(const Op& op) {
        const TensorId y = p_.outputs(op)[0];
        if (!tracked(y)) return;
        const TensorId dy = settled(y, op.unit);
        if (dy < 0) return;
        const std::vector<TensorId> in(p_.inputs(op).begin(), p_.inputs(op).end());
        for (const InputGradient& g : append_gradient(p_, op, dy, weight_gradient_)) {
            const TensorId x = in[static_cast<std::size_t>(g.input)];
            if (const auto it = chunk_.parameters.find(x); it != chunk_.parameters.end())
                chunk_.weight_gradients[g.gradient] = {it->second, uses_[it->second]++};
            else if (tracked(x))
                found_[x].push_back(g.gradient);
        }
    }

    TensorId sum(TensorId a, TensorId b, const Where& where) {
        const std::string letters = std::string("bsnd").substr(0, static_cast<std::size_t>(p_.type(a).dims));
        Attributes at;
        at.signature = letters + "," + letters + "->" + letters;
        return p_.add(Kind::add, {a, b}, at, where)[0];
    }

    // The gradient of x from its contributions, in the place it must have; -1 if there are none.
    TensorId settled(TensorId x, NameId unit) {
        const auto it = found_.find(x);
        if (it == found_.end()) return -1;
        const std::vector<TensorId> parts = std::move(it->second);
        found_.erase(it);
        const Where where{Part::backward_input, unit, -1, -1};
        std::vector<TensorId> groups;  // one per placement
        for (const TensorId g : parts) {
            bool joined = false;
            for (TensorId& h : groups) {
                if (joined || !(p_.type(h).place == p_.type(g).place)) continue;
                h = sum(h, g, where);
                joined = true;
            }
            if (!joined) groups.push_back(g);
        }
        const bool may_stay_partial = carries_partial(maker_[static_cast<std::size_t>(x)]) && groups.size() == 1;
        TensorId total = -1;
        for (TensorId g : groups) {
            if (!may_stay_partial) g = p_.to(g, p_.type(x).place.whole(), where);
            total = total < 0 ? g : sum(total, g, where);
        }
        return total;
    }

    Chunk& chunk_;
    Program& p_;
    const DType weight_gradient_;
    std::vector<Op> forward_;
    std::vector<bool> tracked_;
    std::vector<Kind> maker_;
    std::map<TensorId, std::vector<TensorId>> found_;
    std::map<int, int> uses_;
};

}  // namespace

void differentiate(Chunk& chunk, const Model& model) { Backward(chunk, model).run(); }

}  // namespace quadrille
