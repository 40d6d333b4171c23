#include "compile/verify.hpp"

#include "ir/table.hpp"

#include <algorithm>
#include <map>

namespace quadrille {
namespace {

class Types {
  public:
    Types(const Program& p, Faults& faults) : p_(p), faults_(faults), defined_(p.tensors.size(), false), read_(p.tensors.size(), false) {}

    void run() {
        for (const TensorId t : p_.initial_state()) defined_[static_cast<std::size_t>(t)] = true;
        for (op_ = 0; op_ < static_cast<std::int32_t>(p_.ops.size()); ++op_) {
            const Op& op = p_.ops[static_cast<std::size_t>(op_)];
            check_definitions(op);
            check_rule(op);
            check_places(op);
            check_queue(op);
        }
        check_moves_are_read();
        check_message_tier();
        check_updates();
    }

  private:
    void say(std::string reason) { faults_.push_back({p_.coordinate, op_, std::move(reason)}); }
    bool is_defined(TensorId t) const { return defined_[static_cast<std::size_t>(t)]; }
    bool same_bytes(TensorId a, TensorId b) const {
        const Tensor &x = p_.tensor(a), &y = p_.tensor(b);
        return x.buffer == y.buffer && x.offset == y.offset && x.slice_axes == y.slice_axes;
    }
    // The unit that an op's attributes name; null: there is none of that number.
    const Flat* unit(const Op& op) const {
        const int u = p_.attributes(op).unit;
        return u < 0 || static_cast<std::size_t>(u) >= p_.flats.size() ? nullptr : &p_.flats[static_cast<std::size_t>(u)];
    }

    void check_definitions(const Op& op) {
        for (const TensorId t : p_.inputs(op)) {
            if (!is_defined(t)) say(p_.name(t) + " is read before it is made");
            read_[static_cast<std::size_t>(t)] = true;
        }
        for (const TensorId t : p_.outputs(op)) {
            if (is_defined(t)) say(p_.name(t) + " is made twice");
            defined_[static_cast<std::size_t>(t)] = true;
        }
    }

    void check_rule(const Op& op) {
        if (p_.attributes(op).unexpanded) say("attention over keys of other ranks was not expanded into a ring");
        types_.clear();
        for (const TensorId t : p_.inputs(op)) types_.push_back(p_.tensor(t).type);
        try {
            const auto& rule = p_.tables->infer(op, types_);
            if (rule.size() != op.outputs) return say(fmt::format("{} outputs, the rule gives {}", op.outputs, rule.size()));
            for (std::size_t i = 0; i < rule.size(); ++i) {
                const TensorType &want = p_.tables->type(rule[i]), &have = p_.type(p_.outputs(op)[i]);
                if (want.same_place(have) && want.covers == have.covers && want.tier == have.tier) continue;
                say(fmt::format("{} is declared {}, the rule gives {}", p_.name(p_.outputs(op)[i]), text(have), text(want)));
            }
        } catch (const TypingError& e) {
            say(e.what());
        }
    }

    // Moves that reach other ranks run behind, on the queue of their kind, until an op that comes later; nothing else does.
    void check_queue(const Op& op) {
        Queue want = op.kind == Kind::send || op.kind == Kind::recv ? Queue::stage : Queue::compute;
        if (op.kind == Kind::move) want = copy_queue(p_.type(p_.inputs(op)[0]).tier, p_.attributes(op).tier);
        if (op.kind == Kind::redistribute) {
            try {
                if (moves_data(change(p_, op).pair)) want = Queue::collective;
            } catch (const TypingError&) {
                return;  // said already
            }
        }
        if (op.queue != want) say("it is on another queue than its kind runs on");
        if (op.until >= 0 && (op.until <= op_ || op.queue == Queue::compute))
            say(fmt::format("it is to be done before op {}, and issued at op {}", op.until, op_));
    }

    // Results that a kernel writes over an operand must stand where that operand stands, and views where their buffer has them.
    void check_places(const Op& op) {
        const auto in = p_.inputs(op), out = p_.outputs(op);
        const Attributes& a = p_.attributes(op);
        if (op.adds || a.carries) demand_same(in.last(out.size()), out);
        if (op.kind == Kind::adamw || op.kind == Kind::sgd) {
            std::vector<TensorId> state = {in[0]};
            for (std::size_t i = 3; i < in.size(); ++i) state.push_back(in[i]);
            demand_same(state, out);
        }
        if (op.kind == Kind::retain) demand_same(in.first(1), out.first(1));
        if (op.kind == Kind::redistribute) return check_slices(op);
        if (op.kind == Kind::split) check_views(op, in[0], out);
        if (op.kind == Kind::join) check_views(op, out[0], in);
    }

    // Views stand in their flat buffer where the unit has them.
    void check_views(const Op& op, TensorId flat, std::span<const TensorId> views) {
        const Flat* u = unit(op);
        if (!u || u->segments.size() != views.size()) return say("no such unit");
        for (std::size_t i = 0; i < views.size(); ++i) {
            const FlatSegment& s = u->segments[i];
            const Tensor &v = p_.tensor(views[i]), &whole = p_.tensor(flat);
            if (v.buffer != whole.buffer || v.offset != whole.offset + s.offset || p_.tables->count(v.type) != s.count)
                say(p_.name(views[i]) + " is not where its unit has it");
        }
    }

    // A result in its operand's own buffer is that operand's bytes, this rank's slice of them along the axes that now cut it, or the whole of
    // which the operand is a slice.
    void check_slices(const Op& op) {
        for (std::size_t i = 0; i < op.outputs && i < op.inputs; ++i) {
            const TensorId x = p_.inputs(op)[i], y = p_.outputs(op)[i];
            const Tensor &from = p_.tensor(x), &to = p_.tensor(y);
            if (from.buffer != to.buffer) {
                if (!to.slice_axes.empty()) say(p_.name(y) + " is a slice of a buffer that it was not cut from");
                continue;
            }
            const AxisSet before = p_.type(x).place.cut_axes(), after = p_.type(y).place.cut_axes(), cut = after - before, joined = before - after;
            if (from.offset != to.offset || to.slice_axes != ((from.slice_axes | cut) - joined)) say(p_.name(y) + " is not where its operand has it");
            // Slices lie in the order of the axes, slowest first: the cut must be nested so.
            const Placement &whole = p_.type(cut.empty() ? y : x).place, &sliced = p_.type(cut.empty() ? x : y).place;
            if (!(cut | joined).empty() && !(sliced.cuts[0] == whole.cuts[0].then(Cuts::along(p_.grid(), cut | joined))))
                say(p_.name(y) + " is cut otherwise than its slices lie");
        }
    }

    void demand_same(std::span<const TensorId> earlier, std::span<const TensorId> now) {
        for (std::size_t i = 0; i < now.size() && i < earlier.size(); ++i)
            if (!same_bytes(earlier[i], now[i])) say(fmt::format("{} must stand in the place of {}", p_.name(now[i]), p_.name(earlier[i])));
    }

    void check_moves_are_read() {
        for (op_ = 0; op_ < static_cast<std::int32_t>(p_.ops.size()); ++op_) {
            const Op& op = p_.ops[static_cast<std::size_t>(op_)];
            const bool moves = op.kind == Kind::redistribute || op.kind == Kind::recv || op.kind == Kind::move || op.kind == Kind::load;
            if (!moves && op.kind != Kind::accumulate && !op.writes_sum) continue;
            for (const TensorId t : p_.outputs(op)) {
                const bool of_the_step = p_.tells(t) || p_.buffer(t).persistent;  // new weights are for the next step
                if (!read_[static_cast<std::size_t>(t)] && !of_the_step) say(p_.name(t) + " is made or moved for nobody");
            }
        }
    }

    void check_message_tier() {
        const Tier all = message_tier(p_);
        for (op_ = 0; op_ < static_cast<std::int32_t>(p_.ops.size()); ++op_) {
            const Op& op = p_.ops[static_cast<std::size_t>(op_)];
            if (!moves_between_ranks(op)) continue;
            const Tier tier = p_.type(p_.operands[op.first]).tier;
            if (tier != all) say(fmt::format("it moves between ranks in {} memory, others do in {} memory", name_of(tier), name_of(all)));
        }
    }

    void check_updates() {
        bool training = false;
        std::map<const Flat*, int> updates;
        for (op_ = 0; op_ < static_cast<std::int32_t>(p_.ops.size()); ++op_) {
            const Op& op = p_.ops[static_cast<std::size_t>(op_)];
            training = training || op.part == Part::backward_weight;
            if (op.kind != Kind::adamw && op.kind != Kind::sgd) continue;
            const Flat* u = unit(op);
            if (!u) { say("no such unit"); continue; }
            if (++updates[u] > 1) say(fmt::format("unit {} is updated again in the same step", u->unit));
            check_update(op, u->unit);
        }
        op_ = static_cast<std::int32_t>(p_.ops.size()) - 1;  // what is missing is missing when the step ends
        for (const Flat& flat : p_.flats) {
            const bool trained = std::any_of(flat.segments.begin(), flat.segments.end(),
                                             [this](const FlatSegment& s) { return p_.parameters[static_cast<std::size_t>(s.parameter)].trained; });
            if (training && trained && !updates.contains(&flat)) say(fmt::format("the step ends, and unit {} was not updated", flat.unit));
            if (!trained && updates.contains(&flat)) say(fmt::format("unit {} is frozen, and was updated", flat.unit));
        }
        if (p_.loss >= 0 && !is_defined(p_.loss)) say("the step ends without a loss");
        if (training && (p_.norm < 0 || !is_defined(p_.norm))) say("the step ends without the gradient's norm");
        for (const TensorId t : p_.residual_squares)
            if (!is_defined(t)) say("the step ends without a residual's squares");
    }

    // By the norm, from the unit's own weights, gradient and state: W.unit, g.unit, M.unit ...
    void check_update(const Op& op, const std::string& name) {
        if (op.inputs > 2 && (p_.norm < 0 || p_.name(p_.inputs(op)[2]) != p_.name(p_.norm)))
            say("an update from another scalar than the gradient's norm");
        for (const TensorId t : p_.inputs(op)) {
            const std::string& operand = p_.tables->name(p_.tensor(t).name);
            if (t != p_.inputs(op)[2] && operand.substr(operand.find('.') + 1) != name) say(fmt::format("unit {} is updated from {}", name, operand));
        }
    }

    const Program& p_;
    Faults& faults_;
    std::vector<bool> defined_, read_;
    std::vector<TypeId> types_;
    std::int32_t op_ = -1;
};

}  // namespace

void verify_types(const Program& p, Faults& faults) { Types(p, faults).run(); }

}  // namespace quadrille
