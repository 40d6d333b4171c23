#include "compile/recompute.hpp"

#include "compile/rewrite.hpp"
#include "ir/table.hpp"

#include <algorithm>

namespace quadrille {
namespace {

class Recompute {
  public:
    Recompute(Chunk& chunk, Granularity granularity) : chunk_(chunk), rewrite_(chunk.program), p_(chunk.program), granularity_(granularity) {
        maker_.assign(p_.tensors.size(), nullptr);
        in_input_part_.assign(p_.tensors.size(), false);
    }

    void run() {
        find_dropped();
        divide_parts();
        const auto& ops = rewrite_.old_ops();
        for (std::size_t i = 0; i < ops.size(); ++i) {
            if (ops[i].part != Part::forward) {
                // What has to come from other ranks travels beside the op before its reader.
                if (i + 1 < ops.size()) remake_all(ops[i + 1], true);
                remake_all(ops[i], false);
            }
            rewrite_.keep(ops[i]);
        }
    }

  private:
    const Op* maker(TensorId t) const { return static_cast<std::size_t>(t) < maker_.size() ? maker_[static_cast<std::size_t>(t)] : nullptr; }
    std::int64_t bytes(TensorId t) const { return p_.tables->bytes(p_.tensors[static_cast<std::size_t>(t)].type); }
    bool in_block(const Op& op) const { return std::find(chunk_.blocks.begin(), chunk_.blocks.end(), op.unit) != chunk_.blocks.end(); }

    // A copy gathered over some of `axes`.
    bool gathers(const Op& op, AxisSet axes) const {
        if (op.kind != Kind::redistribute) return false;
        const Change c = change(p_.type(p_.inputs(op)[0]), p_.tables->type(p_.attributes(op).types[0]).place);
        return c.pair == Pair::all_gather && axes.contains(c.axes);
    }

    bool kept(const Op& op) const {
        switch (granularity_) {
            case Granularity::none: return !gathers(op, tensor_axes);
            case Granularity::selective:
                if (op.kind == Kind::redistribute) return !gathers(op, tensor_axes | AxisSet(Axis::sp));  // of a move the smaller side
                return op.kind == Kind::matmul || op.kind == Kind::scale || op.kind == Kind::attention || op.kind == Kind::add;
            case Granularity::full: return false;
        }
        return true;
    }

    // The makers of dropped tensors. What another unit reads is kept: it is that block's input, or the chunk's result.
    void find_dropped() {
        const auto& ops = rewrite_.old_ops();
        std::vector<bool> leaves(p_.tensors.size(), false);
        std::vector<NameId> unit(p_.tensors.size(), -1);
        leaves[static_cast<std::size_t>(chunk_.result)] = true;
        for (const Op& op : ops) {
            if (op.part != Part::forward) continue;
            for (const TensorId t : p_.outputs(op)) unit[static_cast<std::size_t>(t)] = op.unit;
            for (const TensorId t : p_.inputs(op))
                if (unit[static_cast<std::size_t>(t)] != op.unit) leaves[static_cast<std::size_t>(t)] = true;
        }
        for (const Op& op : ops) {
            if (op.part != Part::forward || !in_block(op) || kept(op)) continue;
            const auto out = p_.outputs(op);
            if (std::any_of(out.begin(), out.end(), [&](TensorId t) { return leaves[static_cast<std::size_t>(t)]; })) continue;
            for (const TensorId t : out) maker_[static_cast<std::size_t>(t)] = &op;
        }
    }

    // Which dropped tensors the input part makes again: those it needs itself, through everything dropped, and those that are no larger than
    // what would have to be kept for making them in the weight part.
    void divide_parts() {
        std::vector<bool> stays(p_.tensors.size(), false);
        for (const auto& [t, index] : chunk_.parameters) stays[static_cast<std::size_t>(t)] = true;
        for (const auto& [t, kind] : chunk_.inputs) stays[static_cast<std::size_t>(t)] = true;
        for (const Op& op : rewrite_.old_ops())
            for (const TensorId t : p_.inputs(op)) {
                if (op.part == Part::backward_input) make_in_input_part(t);
                if (op.part == Part::backward_weight) stays[static_cast<std::size_t>(t)] = true;
            }
        for (const Op& op : rewrite_.old_ops()) {
            if (op.part != Part::forward || !maker(p_.outputs(op)[0])) continue;
            std::int64_t more = 0, made = 0;
            for (const TensorId t : p_.inputs(op)) {
                const bool there = maker(t) ? !in_input_part_[static_cast<std::size_t>(t)] : stays[static_cast<std::size_t>(t)];
                if (!there) more += bytes(t);
            }
            for (const TensorId t : p_.outputs(op)) made += bytes(t);
            if (more >= made) make_in_input_part(p_.outputs(op)[0]);
        }
    }

    void make_in_input_part(TensorId t) {
        if (!maker(t) || in_input_part_[static_cast<std::size_t>(t)]) return;
        for (const TensorId y : p_.outputs(*maker(t))) in_input_part_[static_cast<std::size_t>(y)] = true;
        for (const TensorId x : p_.inputs(*maker(t))) make_in_input_part(x);
    }

    void remake_all(const Op& reader, bool moves_only) {
        const std::vector<TensorId> in(p_.inputs(reader).begin(), p_.inputs(reader).end());  // a copy: appending moves the operands
        for (const TensorId t : in)
            if (maker(t) && (!moves_only || maker(t)->kind == Kind::redistribute)) remake(t);
    }

    // Appends the clones that t and what it is made of need, and names t's clone as what is read from here on.
    void remake(TensorId t) {
        if (!maker(t) || rewrite_.renamed(t) != t) return;
        Op op = *maker(t);
        std::vector<TensorId> in(p_.inputs(op).begin(), p_.inputs(op).end()), out(p_.outputs(op).begin(), p_.outputs(op).end());
        for (TensorId& x : in) {
            remake(x);
            x = rewrite_.renamed(x);
        }
        op.clone = true;
        op.part = in_input_part_[static_cast<std::size_t>(t)] ? Part::backward_input : Part::backward_weight;
        for (TensorId& y : out) {
            const TensorId again = p_.declare(p_.name(y) + "~", p_.type(y));
            rewrite_.rename(y, again);
            y = again;
        }
        p_.append(op, in, out);
    }

    const Chunk& chunk_;
    Rewrite rewrite_;
    Program& p_;
    const Granularity granularity_;
    std::vector<const Op*> maker_;       // of the tensors that are not kept; null for all others
    std::vector<bool> in_input_part_;
};

}  // namespace

void recompute(Chunk& chunk, Granularity granularity) { Recompute(chunk, granularity).run(); }

}  // namespace quadrille
