#include "compile/verify.hpp"

#include "ir/table.hpp"

#include <map>

namespace quadrille {
namespace {

class Types {
  public:
    Types(const Program& p, Faults& faults) : p_(p), faults_(faults), defined_(p.tensors.size(), false), read_(p.tensors.size(), false) {
        for (std::size_t t = 0; t < p.tensors.size(); ++t)
            if (p.buffers[static_cast<std::size_t>(p.tensors[t].buffer)].persistent) state_.push_back(static_cast<TensorId>(t));
    }

    void run() {
        declare_state();
        for (op_ = 0; op_ < static_cast<std::int32_t>(p_.ops.size()); ++op_) {
            const Op& op = p_.ops[static_cast<std::size_t>(op_)];
            check_definitions(op);
            check_rule(op);
            check_places(op);
            check_queue(op);
        }
        check_moves_are_read();
        check_updates();
    }

  private:
    void say(std::string reason) { faults_.push_back({p_.coordinate, op_, std::move(reason)}); }
    const Tensor& tensor(TensorId t) const { return p_.tensors[static_cast<std::size_t>(t)]; }
    bool same_bytes(TensorId a, TensorId b) const {
        return tensor(a).buffer == tensor(b).buffer && tensor(a).offset == tensor(b).offset && tensor(a).slice_axes == tensor(b).slice_axes;
    }

    // State that no op makes is there from the start: the flat buffers.
    void declare_state() {
        std::vector<bool> made(p_.tensors.size(), false);
        for (const Op& op : p_.ops)
            for (const TensorId t : p_.outputs(op)) made[static_cast<std::size_t>(t)] = true;
        for (const TensorId t : state_)
            if (!made[static_cast<std::size_t>(t)]) defined_[static_cast<std::size_t>(t)] = true;
    }

    void check_definitions(const Op& op) {
        for (const TensorId t : p_.inputs(op)) {
            if (!defined_[static_cast<std::size_t>(t)]) say(p_.name(t) + " is read before it is made");
            read_[static_cast<std::size_t>(t)] = true;
        }
        for (const TensorId t : p_.outputs(op)) {
            if (defined_[static_cast<std::size_t>(t)]) say(p_.name(t) + " is made twice");
            defined_[static_cast<std::size_t>(t)] = true;
        }
    }

    void check_rule(const Op& op) {
        if (p_.attributes(op).unexpanded) say("attention over keys of other ranks was not expanded into a ring");
        types_.clear();
        for (const TensorId t : p_.inputs(op)) types_.push_back(tensor(t).type);
        try {
            const auto& rule = p_.tables->infer(op, types_);
            if (rule.size() != op.outputs) return say(fmt::format("{} outputs, the rule gives {}", op.outputs, rule.size()));
            for (std::size_t i = 0; i < rule.size(); ++i) {
                const TensorType &want = p_.tables->type(rule[i]), &have = p_.type(p_.outputs(op)[i]);
                if (!want.same_place(have) || want.covers != have.covers) say(fmt::format("{} is declared {}, the rule gives {}", p_.name(p_.outputs(op)[i]), text(have), text(want)));
            }
        } catch (const TypingError& e) {
            say(e.what());
        }
    }

    // Moves that reach other ranks run behind, on the queue of their kind, until an op that comes later; nothing else does.
    void check_queue(const Op& op) {
        Queue want = op.kind == Kind::send || op.kind == Kind::recv ? Queue::stage : Queue::compute;
        if (op.kind == Kind::redistribute) {
            try {
                if (moves_data(change(p_.type(p_.inputs(op)[0]), p_.tables->type(p_.attributes(op).types[0]).place).pair)) want = Queue::collective;
            } catch (const TypingError&) {
                return;  // said already
            }
        }
        if (op.queue != want) say("it is on another queue than its kind runs on");
        if (op.until >= 0 && (op.until <= op_ || op.queue == Queue::compute)) say(fmt::format("it is to be done before op {}, and issued at op {}", op.until, op_));
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
        if (op.kind == Kind::redistribute) return check_slices(op);
        if (op.kind != Kind::split && op.kind != Kind::join) return;
        const auto views = op.kind == Kind::split ? out : in;
        const TensorId flat = op.kind == Kind::split ? in[0] : out[0];
        if (a.unit < 0 || static_cast<std::size_t>(a.unit) >= p_.flats.size() || p_.flats[static_cast<std::size_t>(a.unit)].segments.size() != views.size()) return say("no such unit");
        for (std::size_t i = 0; i < views.size(); ++i) {
            const FlatSegment& s = p_.flats[static_cast<std::size_t>(a.unit)].segments[i];
            const Tensor& v = tensor(views[i]);
            if (v.buffer != tensor(flat).buffer || v.offset != tensor(flat).offset + s.offset || p_.tables->count(v.type) != s.count) say(p_.name(views[i]) + " is not where its unit has it");
        }
    }

    // A result in its operand's own buffer is that operand's bytes, all of them or this rank's slice along the axes that now cut it.
    void check_slices(const Op& op) {
        for (std::size_t i = 0; i < op.outputs && i < op.inputs; ++i) {
            const Tensor &from = tensor(p_.inputs(op)[i]), &to = tensor(p_.outputs(op)[i]);
            if (from.buffer != to.buffer) {
                if (!to.slice_axes.empty()) say(p_.name(p_.outputs(op)[i]) + " is a slice of a buffer that it was not cut from");
                continue;
            }
            const AxisSet cut = p_.type(p_.outputs(op)[i]).place.cut_axes() - p_.type(p_.inputs(op)[i]).place.cut_axes();
            if (from.offset != to.offset || to.slice_axes != (from.slice_axes | cut)) say(p_.name(p_.outputs(op)[i]) + " is not where its operand has it");
            // Slices lie in the order of the axes, slowest first: the cut must be nested so.
            const Cuts &whole = p_.type(p_.inputs(op)[i]).place.cuts[0], &sliced = p_.type(p_.outputs(op)[i]).place.cuts[0];
            if (!cut.empty() && !(sliced == whole.then(Cuts::along(p_.grid(), cut)))) say(p_.name(p_.outputs(op)[i]) + " is cut otherwise than its slices lie");
        }
    }

    void demand_same(std::span<const TensorId> earlier, std::span<const TensorId> now) {
        for (std::size_t i = 0; i < now.size() && i < earlier.size(); ++i)
            if (!same_bytes(earlier[i], now[i])) say(fmt::format("{} must stand in the place of {}", p_.name(now[i]), p_.name(earlier[i])));
    }

    void check_moves_are_read() {
        for (op_ = 0; op_ < static_cast<std::int32_t>(p_.ops.size()); ++op_) {
            const Op& op = p_.ops[static_cast<std::size_t>(op_)];
            if (op.kind != Kind::redistribute && op.kind != Kind::recv && op.kind != Kind::accumulate && op.kind != Kind::load && !op.writes_sum) continue;
            for (const TensorId t : p_.outputs(op))
                if (!read_[static_cast<std::size_t>(t)] && t != p_.norm && t != p_.tokens) say(p_.name(t) + " is made or moved for nobody");
        }
    }

    void check_updates() {
        bool training = false;
        std::vector<int> updated(p_.flats.size(), 0);
        for (op_ = 0; op_ < static_cast<std::int32_t>(p_.ops.size()); ++op_) {
            const Op& op = p_.ops[static_cast<std::size_t>(op_)];
            training = training || op.part == Part::backward_weight;
            if (op.kind != Kind::adamw && op.kind != Kind::sgd) continue;
            const int unit = p_.attributes(op).unit;
            if (unit < 0 || static_cast<std::size_t>(unit) >= p_.flats.size()) { say("no such unit"); continue; }
            const std::string& name = p_.flats[static_cast<std::size_t>(unit)].unit;
            if (++updated[static_cast<std::size_t>(unit)] > 1) say(fmt::format("unit {} is updated again in the same step", name));
            if (op.inputs > 2 && p_.inputs(op)[2] != p_.norm) say("an update from another scalar than the gradient's norm");
            for (const TensorId t : p_.inputs(op)) {  // W.unit, g.unit, M.unit ...
                const std::string& operand = p_.tables->name(tensor(t).name);
                if (t != p_.norm && operand.substr(operand.find('.') + 1) != name) say(fmt::format("unit {} is updated from {}", name, operand));
            }
        }
        op_ = static_cast<std::int32_t>(p_.ops.size()) - 1;  // what is missing is missing when the step ends
        for (std::size_t u = 0; training && u < updated.size(); ++u)
            if (updated[u] == 0) say(fmt::format("the step ends, and unit {} was not updated", p_.flats[u].unit));
        if (p_.loss >= 0 && !defined_[static_cast<std::size_t>(p_.loss)]) say("the step ends without a loss");
        if (training && (p_.norm < 0 || !defined_[static_cast<std::size_t>(p_.norm)])) say("the step ends without the gradient's norm");
    }

    const Program& p_;
    Faults& faults_;
    std::vector<bool> defined_, read_;
    std::vector<TensorId> state_;
    std::vector<TypeId> types_;
    std::int32_t op_ = -1;
};

}  // namespace

void verify_types(const Program& p, Faults& faults) { Types(p, faults).run(); }

}  // namespace quadrille
