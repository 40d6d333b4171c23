// Value numbers: a Redistribute is the identity on the global value, as are views, sends and casts. Every tensor gets a number for what it means
// globally (kind, attributes, numbers of its operands). Numbers are 128-bit hashes; that of a sum is the wrapping sum of its terms', so
// that sums are multisets without being stored, and a sum of one is its term.
#include "compile/verify.hpp"

#include "base/random.hpp"
#include "ir/table.hpp"

#include <map>

namespace quadrille {
namespace {

struct Value {
    std::uint64_t a = 0, b = 0;
    friend bool operator==(Value, Value) = default;
};
Value operator+(Value x, Value y) { return {x.a + y.a, x.b + y.b}; }

class Hash {
  public:
    explicit Hash(std::string_view what) : v_{hash_text(what), mix64(hash_text(what) + 1)} {}
    Hash& operator<<(std::uint64_t x) {
        v_.a = mix64((v_.a ^ x) + 0x9E3779B97F4A7C15ull);
        v_.b = mix64((v_.b + x) ^ 0xC2B2AE3D27D4EB4Full);
        return *this;
    }
    Hash& operator<<(double x) { return *this << std::bit_cast<std::uint64_t>(x); }
    Hash& operator<<(Value x) { return *this << x.a << x.b; }
    Value value() const { return v_; }

  private:
    Value v_;
};

class Meaning {
  public:
    explicit Meaning(std::span<const Program> programs) : programs_(programs), at_(programs.size(), 0), value_(programs.size()), flat_(programs.size()) {
        for (std::size_t r = 0; r < programs.size(); ++r) {
            value_[r].resize(programs[r].tensors.size());
            for (std::size_t t = 0; t < programs[r].tensors.size(); ++t)
                if (programs[r].buffers[static_cast<std::size_t>(programs[r].tensors[t].buffer)].persistent) flat_[r][static_cast<TensorId>(t)] = initial(programs[r], static_cast<TensorId>(t));
        }
    }

    struct Made { Value value; int coordinate = -1; std::int32_t op = -1; };  // and by which op

    // What the step is for: the update of each parameter, and the scalars that the loop reads.
    std::map<std::string, Made> run() {
        for (bool moving = true; moving;) {
            moving = false;
            for (std::size_t r = 0; r < programs_.size(); ++r)
                while (at_[r] < programs_[r].ops.size() && step(r)) { ++at_[r]; moving = true; }
        }
        for (std::size_t r = 0; r < programs_.size(); ++r) told(r);
        return out_;
    }

  private:
    using List = std::vector<Value>;  // a flat buffer: one value per segment

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

    void record(const std::string& name, const Made& made) {
        const auto [it, fresh] = out_.try_emplace(name, made);
        if (!fresh && !(it->second.value == made.value)) it->second = {Value{}, made.coordinate, made.op};  // two coordinates disagree
    }

    static const Flat* flat_of(const Program& p, std::string_view unit) {
        for (const Flat& f : p.flats)
            if (f.unit == unit) return &f;
        return nullptr;
    }

    // The state before the step: "W.layers.0" means that letter of each of the unit's parameters.
    static List initial(const Program& p, TensorId t) {
        const std::string& name = p.tables->name(p.buffers[static_cast<std::size_t>(p.tensors[static_cast<std::size_t>(t)].buffer)].name);
        List list;
        if (const Flat* f = flat_of(p, std::string_view(name).substr(2)))
            for (const FlatSegment& s : f->segments) list.push_back((Hash("state") << static_cast<std::uint64_t>(name[0]) << hash_text(p.parameters[static_cast<std::size_t>(s.parameter)].name)).value());
        return list;
    }

    Value& value(std::size_t r, TensorId t) { return value_[r][static_cast<std::size_t>(t)]; }

    bool step(std::size_t r) {
        const Program& p = programs_[r];
        const Op& op = p.ops[at_[r]];
        switch (op.kind) {
            case Kind::recv: return receive(r, p, op);
            case Kind::send: sent_[tag(p.coordinate, p.attributes(op).peer, p, op)] = value(r, p.inputs(op)[0]); return true;
            case Kind::redistribute: return redistribute(r, p, op);
            case Kind::split: split(r, p, op); return true;
            case Kind::join: join(r, p, op); return true;
            case Kind::sum_squares: sum_squares(r, p, op); return true;
            case Kind::adamw:
            case Kind::sgd: update(r, p, op); return true;
            default: compute(r, p, op); return true;
        }
    }

    using Tag = std::tuple<int, int, bool, int, int>;
    static Tag tag(int from, int to, const Program& p, const Op& op) { return {from, to, p.attributes(op).gradient, p.attributes(op).chunk, op.microbatch}; }

    bool receive(std::size_t r, const Program& p, const Op& op) {
        const auto it = sent_.find(tag(p.attributes(op).peer, p.coordinate, p, op));
        if (it == sent_.end()) return false;
        value(r, p.outputs(op)[0]) = it->second;
        return true;
    }

    bool redistribute(std::size_t r, const Program& p, const Op& op) {
        const Placement& to = p.tables->type(p.attributes(op).types[0]).place;
        const Change c = change(p.type(p.inputs(op)[0]), to);
        if (c.axes.has(Axis::pp) && moves_data(c.pair)) return sum_over_pp(r, op, to.holders);
        for (std::size_t i = 0; i < op.inputs; ++i) {
            const TensorId x = p.inputs(op)[i], y = p.outputs(op)[i];
            if (c.axes.has(Axis::pp) && p.coordinate != 0) continue;  // the first keeps it, here it is nothing
            value(r, y) = value(r, x);
            if (const auto it = flat_[r].find(x); it != flat_[r].end()) flat_[r][y] = it->second;
        }
        return true;
    }

    // All members are at this op: each gets the total. Those other than r are moved on here.
    bool sum_over_pp(std::size_t r, const Op& op, Holders holders) {
        const std::size_t last = programs_.size() - 1;
        std::vector<std::size_t> group;
        for (std::size_t m = 0; m <= last; ++m)
            if (holders != Holders::ends || m == 0 || m == last) group.push_back(m);
        for (const std::size_t m : group) {
            const Program& q = programs_[m];
            if (at_[m] >= q.ops.size() || q.ops[at_[m]].kind != Kind::redistribute || q.ops[at_[m]].attributes != op.attributes || q.ops[at_[m]].unit != op.unit) return false;
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
            if (p.tables->type(q.type).place.cut_axes() == a.which) total = total + (Hash("square") << hash_text(q.name) << list[i]).value();
        }
        value(r, p.outputs(op)[0]) = total;
    }

    void update(std::size_t r, const Program& p, const Op& op) {
        const Attributes& a = p.attributes(op);
        const auto in = p.inputs(op);
        const Flat& flat = p.flats[static_cast<std::size_t>(a.unit)];
        for (std::size_t i = 0; i < flat.segments.size(); ++i) {
            const Parameter& q = p.parameters[static_cast<std::size_t>(flat.segments[i].parameter)];
            Hash h(row(op.kind).name);
            h << value(r, in[2]) << a.clip << static_cast<std::uint64_t>(q.decays) << static_cast<std::uint64_t>(a.microbatches);
            for (std::size_t k = 0; k < in.size(); ++k)
                if (k != 2) h << (i < flat_[r][in[k]].size() ? flat_[r][in[k]][i] : Value{});
            record("the update of " + q.name, {h.value(), p.coordinate, static_cast<std::int32_t>(at_[r])});
        }
        for (const TensorId t : p.outputs(op)) flat_[r][t] = List(flat.segments.size(), Hash("updated").value());
    }

    // Everything else: a number of the kind, its attributes and its operands. Additions are totals; fused kinds are what they are made of.
    void compute(std::size_t r, const Program& p, const Op& op) {
        const Attributes& a = p.attributes(op);
        const auto in = p.inputs(op), out = p.outputs(op);
        const auto number = [&](std::string_view kind, std::size_t which, std::size_t operands, std::string_view signature) {
            Hash h(kind);
            h << which << hash_text(signature) << static_cast<std::uint64_t>(a.stream) << a.rate << a.eps << static_cast<std::uint64_t>(a.rms) << static_cast<std::uint64_t>(a.inverse) << a.base
              << static_cast<std::uint64_t>(a.vocab) << static_cast<std::uint64_t>(a.input) << static_cast<std::uint64_t>(a.microbatches);
            if (op.kind == Kind::load || a.rate > 0) h << static_cast<std::uint64_t>(op.microbatch);
            for (std::size_t i = 0; i < operands; ++i) h << value(r, in[i]);
            return h.value();
        };
        std::size_t operands = in.size();
        if (op.adds || a.carries) operands -= out.size();
        switch (op.kind) {
            case Kind::add:
            case Kind::accumulate: value(r, out[0]) = value(r, in[0]) + spread(r, p, op); return;
            case Kind::zero: value(r, out[0]) = Value{}; return;
            case Kind::cast: value(r, out[0]) = value(r, in[0]); return;
            case Kind::count: {
                Value total;
                for (const TensorId t : in) total = total + (Hash("count") << value(r, t)).value();
                value(r, out[0]) = total;
                return;
            }
            case Kind::residual_norm: {
                const Value sum = value(r, in[0]) + value(r, in[1]);
                Hash h("norm");
                h << a.eps << static_cast<std::uint64_t>(a.rms) << sum;
                for (std::size_t i = 2; i < in.size(); ++i) h << value(r, in[i]);
                value(r, out[0]) = sum;
                value(r, out[1]) = h.value();
                return;
            }
            case Kind::norm: {
                Hash h("norm");
                h << a.eps << static_cast<std::uint64_t>(a.rms);
                for (const TensorId t : in) h << value(r, t);
                value(r, out[0]) = h.value();
                return;
            }
            case Kind::matmul:
            case Kind::matmul_gelu: {
                const Signature s = parse_signature(a.signature);
                Value y = (Hash("matmul") << hash_text(s.in[0] + "," + s.in[1] + "->" + s.out[0]) << value(r, in[0]) << value(r, in[1])).value();
                if (operands == 3) y = y + (Hash("spread") << hash_text(s.in[2]) << value(r, in[2])).value();
                if (op.adds) y = y + value(r, in[operands]);
                value(r, out[0]) = y;
                if (op.kind == Kind::matmul_gelu) value(r, out[1]) = (Hash("gelu") << y).value();
                return;
            }
            case Kind::gelu: value(r, out[0]) = (Hash("gelu") << value(r, in[0])).value(); return;
            default: break;
        }
        List results;
        for (std::size_t i = 0; i < out.size(); ++i) {
            Value v = number(row(op.kind).name, i, operands, a.signature);
            if (op.adds) v = v + value(r, in[operands + i]);
            // A ring's turns are pieces of one attention: what they carry on must be that of the same operands.
            if (a.carries && !(value(r, in[operands + i]) == v)) v = (Hash("mixed turns") << v << value(r, in[operands + i])).value();
            results.push_back(v);
        }
        for (std::size_t i = 0; i < out.size(); ++i) value(r, out[i]) = results[i];
    }

    // The second operand of an addition; of fewer letters, it is spread over the others.
    Value spread(std::size_t r, const Program& p, const Op& op) {
        const Value v = value(r, p.inputs(op)[1]);
        if (op.kind == Kind::accumulate) return v;
        const Signature s = parse_signature(p.attributes(op).signature);
        return s.in[1] == s.out[0] ? v : (Hash("spread") << hash_text(s.in[1]) << v).value();
    }

    std::span<const Program> programs_;
    std::vector<std::size_t> at_;
    std::vector<std::vector<Value>> value_;
    std::vector<std::map<TensorId, List>> flat_;
    std::map<Tag, Value> sent_;
    std::map<std::string, Made> out_;
};

}  // namespace

void verify_meaning(const std::vector<Program>& programs, const Program& serial, Faults& faults) {
    const auto here = Meaning(programs).run(), there = Meaning({&serial, 1}).run();
    for (const auto& [name, made] : there) {
        const auto it = here.find(name);
        const Program& last = programs.back();
        if (it == here.end()) faults.push_back({last.coordinate, static_cast<std::int32_t>(last.ops.size()) - 1, "the step ends without " + name + ", which the program for one rank makes"});
        else if (!(it->second.value == made.value)) faults.push_back({it->second.coordinate, it->second.op, name + " means something else than in the program for one rank"});
    }
    for (const auto& [name, made] : here)
        if (!there.contains(name)) faults.push_back({made.coordinate, made.op, name + " is made, though the program for one rank does not make it"});
}

}  // namespace quadrille
