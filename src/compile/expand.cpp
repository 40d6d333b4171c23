#include "compile/expand.hpp"

#include "compile/rewrite.hpp"

namespace quadrille {
namespace {

class Ring {
  public:
    // `read`: tensors of the chunk that some op reads.
    Ring(Rewrite& r, const Op& op, const std::vector<bool>& read)
        : r_(r), p_(r.program), op_(op), where_{op.part, op.unit, op.microbatch, op.action, op.clone}, a_(p_.attributes(op)) {
        a_.unexpanded = false;
        a_.ring = true;
        for (const TensorId t : p_.inputs(op)) in_.push_back(r.renamed(t));
        outputs_.assign(p_.outputs(op).begin(), p_.outputs(op).end());
        for (const TensorId t : outputs_) read_.push_back(read[static_cast<std::size_t>(t)]);
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
        if (backward) bring_home(state);
        for (std::size_t i = 0; i < state.size(); ++i)
            if (read_[i]) r_.rename(outputs_[i], as(state[i], p_.type(outputs_[i]).dtype));
    }

  private:
    // The tensors moved on to turn j, in one call.
    std::vector<TensorId> turned(std::vector<TensorId> tensors, std::int32_t j) {
        TensorType to = p_.type(tensors[0]);
        to.place.cuts[1].cut[0].turn = j;
        Attributes a;
        a.types = {p_.tables->intern(to)};
        return p_.add(Kind::redistribute, std::move(tensors), a, where_);
    }

    // The gradients of keys and values, as far as they are wanted.
    void bring_home(std::vector<TensorId>& state) {
        std::vector<TensorId> wanted;
        for (const std::size_t i : {1, 2})
            if (read_[i]) wanted.push_back(state[i]);
        if (wanted.empty()) return;
        const auto home = turned(wanted, 0);
        for (std::size_t i = 1, k = 0; i <= 2; ++i)
            if (read_[i]) state[i] = home[k++];
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
    std::vector<bool> read_;  // by output
    std::int32_t turns_ = 1;
};

}  // namespace

void expand_rings(Chunk& chunk) {
    Rewrite r(chunk.program);
    std::vector<bool> read(chunk.program.tensors.size(), false);
    for (const Op& op : r.old_ops())
        for (const TensorId t : chunk.program.inputs(op)) read[static_cast<std::size_t>(t)] = true;
    for (const Op& op : r.old_ops()) {
        if (r.attributes(op).unexpanded) Ring(r, op, read).run();
        else r.keep(op);
    }
}

}  // namespace quadrille
