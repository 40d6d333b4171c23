#include "compile/differentiate.hpp"

#include "ir/gradient.hpp"

#include <map>

namespace quadrille {
namespace {

class Backward {
  public:
    Backward(Chunk& chunk, const Model& model, bool input_wanted)
        : chunk_(chunk), p_(chunk.program), model_(model), input_wanted_(input_wanted && chunk.input >= 0) {}

    bool run() {
        forward_.assign(p_.ops.begin(), p_.ops.end());
        find_tracked();
        TensorType seed = p_.type(chunk_.result);
        chunk_.seed = p_.declare("seed", seed.placed(seed.place.whole()).in(Book::buffers));
        found_[chunk_.result] = {chunk_.seed};
        for (std::size_t i = forward_.size(); i-- > 0;) step(forward_[i]);
        if (input_wanted_) chunk_.input_gradient = settled(chunk_.input, forward_[0].unit);
        return tracked(chunk_.result);
    }

  private:
    bool tracked(TensorId t) const { return tracked_[static_cast<std::size_t>(t)]; }

    bool trained(int parameter) const { return model_.parameters[static_cast<std::size_t>(parameter)].trained; }

    // A tensor is tracked if a trained parameter or the chunk's input, if its gradient is wanted, reaches it through ops that have gradients.
    void find_tracked() {
        tracked_.assign(p_.tensors.size(), false);
        maker_.assign(p_.tensors.size(), Kind::load);
        for (const auto& [t, index] : chunk_.parameters) tracked_[static_cast<std::size_t>(t)] = trained(index);
        if (input_wanted_) tracked_[static_cast<std::size_t>(chunk_.input)] = true;
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
        unsigned wanted = 0;
        for (std::size_t i = 0; i < in.size(); ++i) wanted |= unsigned{tracked(in[i])} << i;
        for (const InputGradient& g : append_gradient(p_, op, dy, model_.weight_gradient, wanted)) {
            const TensorId x = in[static_cast<std::size_t>(g.input)];
            if (!tracked(x)) continue;
            if (const auto it = chunk_.parameters.find(x); it != chunk_.parameters.end())
                chunk_.weight_gradients[g.gradient] = {it->second, uses_[it->second]++};
            else
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
    const Model& model_;
    const bool input_wanted_;
    std::vector<Op> forward_;
    std::vector<bool> tracked_;
    std::vector<Kind> maker_;
    std::map<TensorId, std::vector<TensorId>> found_;
    std::map<int, int> uses_;
};

}  // namespace

bool differentiate(Chunk& chunk, const Model& model, bool input_wanted) { return Backward(chunk, model, input_wanted).run(); }

}  // namespace quadrille
