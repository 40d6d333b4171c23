#include "compile/expand.hpp"

#include "compile/rewrite.hpp"

namespace quadrille {
namespace {

class Ring {
  public:
    Ring(Rewrite& r, const Op& op) : r_(r), p_(r.program), op_(op), where_{op.part, op.unit, op.microbatch, op.action, op.clone}, a_(p_.attributes(op)) {
        a_.unexpanded = false;
        a_.ring = true;
        for (const TensorId t : p_.inputs(op)) in_.push_back(r.renamed(t));
        outputs_.assign(p_.outputs(op).begin(), p_.outputs(op).end());
        turns_ = p_.grid().extent(p_.type(in_[1]).place.cuts[1].cut[0].axis);
    }

    void run() {
        const bool backward = op_.kind == Kind::attention_dx;
        std::vector<TensorId> state, next;
        for (std::int32_t j = 0; j < turns_; ++j) {
            if (j + 1 < turns_) next = turned({in_[1], in_[2]}, j + 1);
            if (backward && j > 0) {
                const auto moved = turned({state[1], state[2]}, j);
                state = {state[0], moved[0], moved[1]};
            }
            std::vector<TensorId> in = in_;
            in.insert(in.end(), state.begin(), state.end());
            Program::Options o;
            o.storage = state;
            a_.carries = j > 0;
            state = p_.add(op_.kind, in, a_, where_, o);
            if (j + 1 < turns_) { in_[1] = next[0]; in_[2] = next[1]; }
        }
        if (backward) {
            const auto home = turned({state[1], state[2]}, 0);
            state = {state[0], home[0], home[1]};
        }
        for (std::size_t i = 0; i < state.size(); ++i) r_.rename(outputs_[i], as(state[i], p_.type(outputs_[i]).dtype));
    }

  private:
    // Both tensors moved on to turn j, in one call.
    std::vector<TensorId> turned(std::vector<TensorId> pair, std::int32_t j) {
        TensorType to = p_.type(pair[0]);
        to.place.cuts[1].cut[0].turn = j;
        Attributes a;
        a.types = {p_.tables->intern(to)};
        return p_.add(Kind::redistribute, std::move(pair), a, where_);
    }

    TensorId as(TensorId x, DType dtype) {
        if (p_.type(x).dtype == dtype) return x;
        Attributes a;
        a.dtype = dtype;
        a.signature = "bsnd->bsnd";
        return p_.add(Kind::cast, {x}, a, where_)[0];
    }

    Rewrite& r_;
    Program& p_;
    const Op op_;
    const Where where_;
    Attributes a_;
    std::vector<TensorId> in_, outputs_;
    std::int32_t turns_ = 1;
};

}  // namespace

void expand_rings(Chunk& chunk) {
    Rewrite r(chunk.program);
    for (const Op& op : r.old_ops()) {
        if (r.attributes(op).unexpanded) Ring(r, op).run();
        else r.keep(op);
    }
}

}  // namespace quadrille
