// The step's meaning, for the whole grid against one rank: every tensor gets a number for what it means globally (meaning.hpp). A
// Redistribute is the identity on the global value, as are views and sends; so what is left is what the step computes.
//
// Compression: packets are taken for the gradient that they were made of (the assumption `lossy`, which a plan prints); verify_residuals.hpp says
// what of the rest is checked.
#include "compile/meaning.hpp"
#include "compile/message.hpp"
#include "compile/verify.hpp"
#include "compile/verify_residuals.hpp"
#include "ir/table.hpp"

#include <algorithm>
#include <map>

namespace quadrille {
namespace {

class Meaning {
  public:
    explicit Meaning(std::span<const Program> programs)
        : programs_(programs), at_(programs.size(), 0), value_(programs.size()), flat_(programs.size()), residuals_(programs) {
        for (std::size_t r = 0; r < programs.size(); ++r) {
            value_[r].resize(programs[r].tensors.size());
            for (const TensorId t : programs[r].initial_state()) flat_[r][t] = before_the_step(programs[r], t);
        }
    }

    struct Made { Value value; int coordinate = -1; std::int32_t op = -1; };  // and by which op

    // What the step is for: the update of each parameter, the state that it leaves, and the scalars that the loop reads.
    std::map<std::string, Made> run() {
        for (bool moving = true; moving;) {
            moving = false;
            for (std::size_t r = 0; r < programs_.size(); ++r)
                while (at_[r] < programs_[r].ops.size() && step(r)) { ++at_[r]; moving = true; }
        }
        for (std::size_t r = 0; r < programs_.size(); ++r) {
            told(r);
            left_behind(r);
        }
        return out_;
    }

    // What is wrong with residuals.
    const Faults& residual_faults() const { return residuals_.faults(); }

  private:
    using List = FlatValues;

    // The scalars that the loop reads after the step.
    void told(std::size_t r) {
        const Program& p = programs_[r];
        const auto tell = [&](const std::string& name, TensorId t) {
            if (t < 0) return;
            std::int32_t maker = -1;
            for (std::size_t i = 0; i < p.ops.size(); ++i)
                for (const TensorId y : p.outputs(p.ops[i]))
                    if (y == t) maker = static_cast<std::int32_t>(i);
            record(name, {value(r, t), p.coordinate, maker});
        };
        tell("the loss", p.loss);
        tell("the gradient's norm", p.norm);
        tell("the count of tokens", p.tokens);
    }

    // The state after the step: what was last written to each of its buffers. Where nothing was, the unit's last op of the step is to blame.
    void left_behind(std::size_t r) {
        const Program& p = programs_[r];
        struct Last { TensorId tensor = -1; std::int32_t op = -1; };
        std::vector<Last> last(p.buffers.size());
        for (const TensorId t : p.initial_state()) last[static_cast<std::size_t>(p.tensor(t).buffer)].tensor = t;
        std::map<NameId, std::int32_t> last_of_unit;
        for (std::size_t i = 0; i < p.ops.size(); ++i) {
            if (p.ops[i].part == Part::step) last_of_unit[p.ops[i].unit] = static_cast<std::int32_t>(i);
            for (const TensorId t : p.outputs(p.ops[i]))
                if (p.ops[i].kind != Kind::split) last[static_cast<std::size_t>(p.tensor(t).buffer)] = {t, static_cast<std::int32_t>(i)};
        }
        for (std::size_t b = 0; b < p.buffers.size(); ++b) {
            if (!p.buffers[b].persistent || p.buffers[b].unit < 0) continue;
            const Flat& flat = p.flats[static_cast<std::size_t>(p.buffers[b].unit)];
            const List& list = flat_[r][last[b].tensor];
            const auto of_unit = last_of_unit.find(p.tables->intern(flat.unit));
            const std::int32_t op = last[b].op >= 0 || of_unit == last_of_unit.end() ? last[b].op : of_unit->second;
            if (p.buffers[b].state == StateKind::residual) {
                residuals_.check_end(r, p.buffers[b].unit, list, op);
                continue;
            }
            for (std::size_t i = 0; i < flat.segments.size(); ++i) {
                const std::string& parameter = p.parameters[static_cast<std::size_t>(flat.segments[i].parameter)].name;
                const Made made = {i < list.size() ? list[i] : Value{}, p.coordinate, op};
                const std::string what = fmt::format("{} of {} after the step", name_of(p.buffers[b].state), parameter);
                if (!p.type(last[b].tensor).place.partial_sum.has(Axis::pp)) record(what, made);
                else if (const auto [it, fresh] = out_.try_emplace(what, made); !fresh) it->second.value = it->second.value + made.value;
            }
        }
    }

    void record(const std::string& name, const Made& made) {
        const auto [it, fresh] = out_.try_emplace(name, made);
        if (!fresh && !(it->second.value == made.value)) it->second = {Value{}, made.coordinate, made.op};  // two coordinates disagree
    }

    Value& value(std::size_t r, TensorId t) { return value_[r][static_cast<std::size_t>(t)]; }

    bool step(std::size_t r) {
        const Program& p = programs_[r];
        const Op& op = p.ops[at_[r]];
        switch (op.kind) {
            case Kind::recv: return receive(r, p, op);
            case Kind::send: sent_[message_of(p, op)] = value(r, p.inputs(op)[0]); return true;
            case Kind::redistribute: return redistribute(r, p, op);
            case Kind::copy:
            case Kind::move: same(r, p.inputs(op)[0], p.outputs(op)[0]); return true;
            case Kind::accumulate: accumulate(r, p.inputs(op)[0], p.inputs(op)[1], p.outputs(op)[0]); return true;
            case Kind::split: split(r, p, op); return true;
            case Kind::join: join(r, p, op); return true;
            case Kind::sum_squares: sum_squares(r, p, op); return true;
            case Kind::adamw:
            case Kind::sgd: update(r, p, op); return true;
            case Kind::compress: compress(r, p, op); return true;
            case Kind::decompress:
                residuals_.decompress(r, op, here(r));
                flat_[r][p.outputs(op)[0]] = flat_[r][p.inputs(op)[0]];
                return true;
            case Kind::retain: retain(r, p, op); return true;
            default: compute(r, p, op); return true;
        }
    }

    bool receive(std::size_t r, const Program& p, const Op& op) {
        const auto it = sent_.find(message_of(p, op));
        if (it == sent_.end()) return false;
        value(r, p.outputs(op)[0]) = it->second;
        return true;
    }

    bool redistribute(std::size_t r, const Program& p, const Op& op) {
        const Change c = change(p, op);
        if (c.axes.has(Axis::pp) && moves_data(c.pair)) return sum_over_pp(r, op, pp_members(p.grid(), p.destination(op).holders));
        for (std::size_t i = 0; i < op.inputs; ++i) {
            if (c.axes.has(Axis::pp) && p.coordinate != 0) continue;  // the first keeps it, here it is nothing
            same(r, p.inputs(op)[i], p.outputs(op)[i]);
        }
        return true;
    }

    // y is x in another place.
    void same(std::size_t r, TensorId x, TensorId y) {
        value(r, y) = value(r, x);
        if (const auto it = flat_[r].find(x); it != flat_[r].end()) flat_[r][y] = it->second;
        residuals_.same(r, x, y);
    }

    // Of scalars, or of flat buffers segment by segment.
    void accumulate(std::size_t r, TensorId a, TensorId b, TensorId to) {
        value(r, to) = value(r, a) + value(r, b);
        const auto x = flat_[r].find(a), y = flat_[r].find(b);
        if (x == flat_[r].end() || y == flat_[r].end()) return;
        List sums = x->second;
        sums.resize(std::max(sums.size(), y->second.size()));
        for (std::size_t i = 0; i < y->second.size(); ++i) sums[i] = sums[i] + y->second[i];
        flat_[r][to] = std::move(sums);
    }

    // All members are at this op: each gets the total. Those other than r are moved on here.
    bool sum_over_pp(std::size_t r, const Op& op, const std::vector<int>& members) {
        const std::vector<std::size_t> group(members.begin(), members.end());
        for (const std::size_t m : group) {
            const Program& q = programs_[m];
            if (at_[m] >= q.ops.size()) return false;
            const Op& theirs = q.ops[at_[m]];
            if (theirs.kind != Kind::redistribute || theirs.attributes != op.attributes || theirs.unit != op.unit) return false;
        }
        for (std::size_t k = 0; k < op.inputs; ++k) {
            Value total;
            List list;
            for (const std::size_t m : group) {
                const TensorId x = programs_[m].inputs(programs_[m].ops[at_[m]])[k];
                total = total + value(m, x);
                const List& more = flat_[m][x];
                list.resize(std::max(list.size(), more.size()));
                for (std::size_t i = 0; i < more.size(); ++i) list[i] = list[i] + more[i];
            }
            for (const std::size_t m : group) {
                const TensorId y = programs_[m].outputs(programs_[m].ops[at_[m]])[k];
                value(m, y) = total;
                flat_[m][y] = list;
            }
        }
        for (const std::size_t m : group) at_[m] += m != r;
        return true;
    }

    void split(std::size_t r, const Program& p, const Op& op) {
        const List& list = flat_[r][p.inputs(op)[0]];
        for (std::size_t i = 0; i < op.outputs; ++i) value(r, p.outputs(op)[i]) = i < list.size() ? list[i] : Value{};
    }

    void join(std::size_t r, const Program& p, const Op& op) {
        List list;
        for (const TensorId t : p.inputs(op)) list.push_back(value(r, t));
        flat_[r][p.outputs(op)[0]] = std::move(list);
    }

    void sum_squares(std::size_t r, const Program& p, const Op& op) {
        const Attributes& a = p.attributes(op);
        const Flat& flat = p.flats[static_cast<std::size_t>(a.unit)];
        const List& list = flat_[r][p.inputs(op)[0]];
        Value total;
        for (std::size_t i = 0; i < flat.segments.size() && i < list.size(); ++i) {
            const Parameter& q = p.parameters[static_cast<std::size_t>(flat.segments[i].parameter)];
            if (p.tables->type(q.type).place.cut_axes() != a.which) continue;
            total = total + (Hash("square") << hash_text(q.name) << list[i]).value();
        }
        value(r, p.outputs(op)[0]) = total;
    }

    void update(std::size_t r, const Program& p, const Op& op) {
        const Attributes& a = p.attributes(op);
        const auto in = p.inputs(op);
        const Flat& flat = p.flats[static_cast<std::size_t>(a.unit)];
        std::vector<List> made(op.outputs, List(flat.segments.size()));
        for (std::size_t i = 0; i < flat.segments.size(); ++i) {
            const Parameter& q = p.parameters[static_cast<std::size_t>(flat.segments[i].parameter)];
            const auto part = [&](TensorId t) { return i < flat_[r][t].size() ? flat_[r][t][i] : Value{}; };
            Hash h(row(op.kind).name);
            h << value(r, in[2]) << a.clip << static_cast<std::uint64_t>(q.decays) << static_cast<std::uint64_t>(a.microbatches)
              << static_cast<std::uint64_t>(a.loss_scale) << static_cast<std::uint64_t>(a.stale);
            for (std::size_t k = 0; k < in.size(); ++k)
                if (k != 2) h << part(in[k]);
            record("the update of " + q.name, {h.value(), p.coordinate, static_cast<std::int32_t>(at_[r])});
            for (std::size_t k = 0; k < made.size(); ++k) made[k][i] = (Hash("updated") << h.value() << part(in[k == 0 ? 0 : k + 2])).value();
        }
        for (std::size_t k = 0; k < made.size(); ++k) flat_[r][p.outputs(op)[k]] = std::move(made[k]);
    }

    void compress(std::size_t r, const Program& p, const Op& op) {
        const auto in = p.inputs(op), out = p.outputs(op);
        const List gradient = flat_[r][in[0]];
        flat_[r][out[0]] = gradient;
        const List left = residuals_.compress(r, op, here(r), gradient, in.size() > 1 ? &flat_[r][in[1]] : nullptr);
        if (in.size() > 1) flat_[r][out[1]] = left;
    }

    void retain(std::size_t r, const Program& p, const Op& op) {
        const auto in = p.inputs(op);
        residuals_.retain(r, op, here(r), flat_[r][in[0]], p.norm >= 0 && value(r, in[2]) == value(r, p.norm));
        flat_[r][p.outputs(op)[0]] = flat_[r][in[1]];
    }

    std::int32_t here(std::size_t r) const { return static_cast<std::int32_t>(at_[r]); }

    void compute(std::size_t r, const Program& p, const Op& op) {
        in_.clear();
        for (const TensorId t : p.inputs(op)) in_.push_back(value(r, t));
        made_.resize(op.outputs);
        number_results(p, op, in_, made_);
        for (std::size_t i = 0; i < made_.size(); ++i) value(r, p.outputs(op)[i]) = made_[i];
    }

    std::span<const Program> programs_;
    std::vector<std::size_t> at_;
    std::vector<std::vector<Value>> value_;
    std::vector<std::map<TensorId, List>> flat_;
    std::map<Message, Value> sent_;
    Residuals residuals_;
    std::map<std::string, Made> out_;
    std::vector<Value> in_, made_;  // scratch of compute
};

}  // namespace

void verify_meaning(const std::vector<Program>& programs, const Program& serial, Faults& faults) {
    Meaning grid(programs);
    const auto here = grid.run(), there = Meaning({&serial, 1}).run();
    faults.insert(faults.end(), grid.residual_faults().begin(), grid.residual_faults().end());
    const Program& last = programs.back();
    const auto end = static_cast<std::int32_t>(last.ops.size()) - 1;
    for (const auto& [name, made] : there) {
        const auto it = here.find(name);
        if (it == here.end())
            faults.push_back({last.coordinate, end, "the step ends without " + name + ", which the program for one rank makes"});
        else if (!(it->second.value == made.value))
            faults.push_back({it->second.coordinate, it->second.op, name + " means something else than in the program for one rank"});
    }
    for (const auto& [name, made] : here)
        if (!there.contains(name)) faults.push_back({made.coordinate, made.op, name + " is made, though the program for one rank does not make it"});
}

}  // namespace quadrille
