#include "compile_interpreter.hpp"

#include "base/random.hpp"
#include "compile_interpreter_arena.hpp"
#include "compile_interpreter_kernels.hpp"
#include "ir/table.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>

namespace quadrille::test {
namespace {

double initial(const Parameter& p, std::int64_t element, const Settings& s) {
    const double deviation = p.init == Init::zeros ? 0.0 : p.init_std > 0 ? 10 * p.init_std : 0.1;
    return (p.init == Init::ones ? 1.0 : 0.0) +
           (deviation + 0.02) * random_normal(hash_text(p.name), static_cast<std::uint64_t>(element)) +
           s.nudge * nudge_direction(p.name, element);
}

class Machine {
  public:
    Machine(const std::vector<Program>& programs, const Settings& s)
        : programs_(programs),
          grid_(programs[0].grid()),
          settings_(s),
          here_(programs.size()),
          at_(programs.size()),
          posted_(programs.size()),
          dying_(programs.size()) {
        for (std::int64_t r = 0; r < grid_.ranks(); ++r) {
            ranks_.push_back(grid_.coordinate(r));
            const int pp = ranks_.back()[Axis::pp];
            here_[static_cast<std::size_t>(pp)].push_back(static_cast<std::size_t>(r));
            arenas_.emplace_back(programs[static_cast<std::size_t>(pp)].peaks[0].arena);
            initialize(static_cast<std::size_t>(r));
        }
        for (std::size_t pp = 0; settings_.poison && pp < programs.size(); ++pp)
            for (const Buffer& b : programs[pp].buffers)
                if (!b.persistent && b.last >= 0) dying_[pp].emplace(b.last, &b);
    }

    Numbers run() {
        for (step_ = 0; step_ < settings_.steps; ++step_) run_step();
        collect();
        return out_;
    }

  private:
    struct Posted {
        TensorId tensor;
        std::int32_t deadline;
        int peer;
        bool gradient;
        int chunk, microbatch;
        std::vector<Piece> arrived;
    };

    const Program& program(std::size_t rank) const { return programs_[static_cast<std::size_t>(ranks_[rank][Axis::pp])]; }
    static const Buffer& buffer(const Program& p, TensorId t) {
        return p.buffers[static_cast<std::size_t>(p.tensors[static_cast<std::size_t>(t)].buffer)];
    }

    // ---- memory ----
    std::int64_t address(std::size_t rank, TensorId t) const {
        const Program& p = program(rank);
        const Tensor& x = p.tensors[static_cast<std::size_t>(t)];
        const Buffer& b = buffer(p, t);
        if (b.offset < 0) fail(p.name(t) + " has no place");
        return b.offset +
               (x.offset + grid_.position(ranks_[rank], x.slice_axes) * p.tables->count(x.type)) * bytes_of(p.type(t).dtype);
    }

    Piece shaped(std::size_t rank, const Program& p, TypeId type) {
        Piece piece;
        piece.type = &p.tables->type(type);
        piece.shape = local_shape(grid_, *piece.type);
        auto& known = index_[{rank, type}];
        if (known[0].empty() && piece.type->dims > 0)
            for (int d = 0; d < piece.type->dims; ++d)
                known[static_cast<std::size_t>(d)] = indices(grid_, *piece.type, d, ranks_[rank]);
        piece.index.lists = &known;
        piece.x.assign(static_cast<std::size_t>(p.tables->count(type)), 0.0);
        return piece;
    }
    Piece shaped(std::size_t rank, TensorId t) {
        return shaped(rank, program(rank), program(rank).tensors[static_cast<std::size_t>(t)].type);
    }

    Piece read(std::size_t rank, TensorId t) {
        Piece piece = shaped(rank, t);
        const int size = bytes_of(piece.type->dtype);
        std::int64_t at = address(rank, t);
        for (double& x : piece.x) {
            const auto value = arenas_[rank].read(at, size);
            if (!value || std::isnan(*value))
                fail(fmt::format("rank {} reads {} where nothing of it is", rank, program(rank).name(t)));
            x = *value;
            at += size;
        }
        return piece;
    }

    void write(std::size_t rank, TensorId t, const std::vector<double>& values) {
        const int size = bytes_of(program(rank).type(t).dtype);
        std::int64_t at = address(rank, t);
        for (const double x : values) {
            arenas_[rank].write(at, size, x);
            at += size;
        }
    }

    // Weights and masters as the parameters' formulas have them; moments 0.
    void initialize(std::size_t rank) {
        const Program& p = program(rank);
        for (const Buffer& b : p.buffers) {
            if (!b.persistent) continue;
            const std::string& name = p.tables->name(b.name);
            const auto flat = std::find_if(p.flats.begin(), p.flats.end(),
                                           [&](const Flat& f) { return f.unit == std::string_view(name).substr(2); });
            if (flat == p.flats.end()) fail("the state " + name + " is no unit's");
            const int size = static_cast<int>(b.bytes / flat->length);
            for (std::int64_t i = 0; i < flat->length; ++i) arenas_[rank].write(b.offset + i * size, size, 0.0);
            if (name[0] != 'W' && name[0] != 'P') continue;
            for (const FlatSegment& s : flat->segments)
                for_each_element(
                    rank, p.parameters[static_cast<std::size_t>(s.parameter)], [&](std::int64_t local, std::int64_t element) {
                        arenas_[rank].write(b.offset + (s.offset + local) * size, size,
                                            initial(p.parameters[static_cast<std::size_t>(s.parameter)], element, settings_));
                    });
        }
    }

    // Calls f(local, global) for every element of this rank's piece that is no padding.
    template <class F>
    void for_each_element(std::size_t rank, const Parameter& q, F f) {
        const Piece piece = shaped(rank, program(rank), q.type);
        for (std::size_t i = 0; i < piece.x.size(); ++i) {
            std::int64_t rest = static_cast<std::int64_t>(i), element = 0, scale = 1;
            bool padding = false;
            for (std::size_t d = q.shape.size(); d-- > 0;) {
                const std::int64_t at = piece.index[d][static_cast<std::size_t>(rest % piece.shape[d])];
                rest /= piece.shape[d];
                padding = padding || at >= q.shape[d];
                element += at * scale;
                scale *= q.shape[d];
            }
            if (!padding) f(static_cast<std::int64_t>(i), element);
        }
    }

    // ---- the step ----
    void run_step() {
        std::fill(at_.begin(), at_.end(), 0);
        for (auto& list : posted_) list.clear();
        for (bool moving = true; moving;) {
            moving = false;
            for (std::size_t pp = 0; pp < programs_.size(); ++pp)
                while (at_[pp] < static_cast<std::int32_t>(programs_[pp].ops.size()) && advance(pp)) moving = true;
        }
        for (std::size_t pp = 0; pp < programs_.size(); ++pp)
            if (at_[pp] < static_cast<std::int32_t>(programs_[pp].ops.size()))
                fail(fmt::format("dead-lock: pp {} waits at op {}", pp, at_[pp]));
        for (const auto& list : posted_)
            if (!list.empty()) fail("a receive that nobody sent to, or nobody waited for");
    }

    bool advance(std::size_t pp) {
        const Program& p = programs_[pp];
        const std::int32_t i = at_[pp];
        const Op& op = p.ops[static_cast<std::size_t>(i)];
        if (op.until >= 0 && op.until <= i) fail("a move that must be done before it is issued");
        if (!receive_what_is_due(pp, op, i)) return false;
        switch (op.kind) {
            case Kind::recv: post(pp, op, i); break;
            case Kind::send:
                if (!send(pp, op)) return false;
                break;
            case Kind::redistribute:
                if (!redistribute(pp, op)) return false;
                return true;  // each member was finished there
            case Kind::split: break;
            default:
                for (const std::size_t rank : here_[pp]) run_kernel(rank, op);
        }
        finish(pp);
        return true;
    }

    void finish(std::size_t pp) {
        const Program& p = programs_[pp];
        const std::int32_t i = at_[pp]++;
        for (const TensorId t : p.outputs(p.ops[static_cast<std::size_t>(i)])) {
            if (t == p.loss) out_.loss.push_back(agreed(pp, t));
            if (t == p.tokens) out_.tokens.push_back(agreed(pp, t));
            if (t == p.norm && pp == 0) out_.norm2.push_back(agreed(pp, t));
        }
        const auto [begin, end] = dying_[pp].equal_range(i);
        for (auto it = begin; it != end; ++it)
            for (const std::size_t rank : here_[pp])
                arenas_[rank].poison(it->second->offset, it->second->offset + it->second->bytes);
    }

    double agreed(std::size_t pp, TensorId t) {
        const double x = read(here_[pp][0], t).x[0];
        for (const std::size_t rank : here_[pp])
            if (read(rank, t).x[0] != x) fail("the ranks disagree about " + programs_[pp].name(t));
        return x;
    }

    void run_kernel(std::size_t rank, const Op& op) {
        const Program& p = program(rank);
        if (op.workspace >= 0) {
            const Buffer& w = p.buffers[static_cast<std::size_t>(op.workspace)];
            arenas_[rank].poison(w.offset, w.offset + w.bytes);
        }
        if (op.kind == Kind::join) {  // the views are the buffer; only the padding is written
            const Flat& flat = p.flats[static_cast<std::size_t>(p.attributes(op).unit)];
            const int size = bytes_of(p.type(p.outputs(op)[0]).dtype);
            for (std::int64_t i = flat.end; i < flat.length; ++i)
                arenas_[rank].write(address(rank, p.outputs(op)[0]) + i * size, size, 0.0);
            return;
        }
        KernelCall call{p, op, ranks_[rank], settings_, step_, {}, {}};
        const std::size_t earlier = op.adds ? op.outputs : 0;
        for (std::size_t k = 0; k + earlier < op.inputs; ++k) call.in.push_back(read(rank, p.inputs(op)[k]));
        for (const TensorId t : p.outputs(op)) call.out.push_back(shaped(rank, t));
        compute(call);
        for (std::size_t k = 0; k < earlier; ++k) {
            const Piece old = read(rank, p.inputs(op)[op.inputs - earlier + k]);
            for (std::size_t i = 0; i < old.x.size(); ++i) call.out[k].x[i] += old.x[i];
        }
        for (std::size_t k = 0; k < op.outputs; ++k) write(rank, p.outputs(op)[k], call.out[k].x);
    }

    // ---- messages ----
    void post(std::size_t pp, const Op& op, std::int32_t i) {
        const Program& p = programs_[pp];
        const Attributes& a = p.attributes(op);
        const TensorId t = p.outputs(op)[0];
        for (const std::size_t rank : here_[pp]) {
            const std::int64_t begin = address(rank, t);
            arenas_[rank].poison(begin, begin + p.tables->bytes(p.tensors[static_cast<std::size_t>(t)].type));
        }
        posted_[pp].push_back({t, op.until < 0 ? i + 1 : op.until, a.peer, a.gradient, a.chunk, op.microbatch, {}});
    }

    // Blocks until the receive is posted; what travels is taken at once, since an op that would write there has to wait for the
    // send.
    bool send(std::size_t pp, const Op& op) {
        const Program& p = programs_[pp];
        const Attributes& a = p.attributes(op);
        for (Posted& r : posted_[static_cast<std::size_t>(a.peer)]) {
            if (!r.arrived.empty() || r.peer != static_cast<int>(pp)) continue;
            if (r.gradient != a.gradient || r.chunk != a.chunk || r.microbatch != op.microbatch)
                fail("a message arrives where another one is expected");
            for (const std::size_t rank : here_[pp]) r.arrived.push_back(read(rank, p.inputs(op)[0]));
            return true;
        }
        return false;
    }

    // What this op reads, and what must be done before it, has arrived; it is written only now.
    bool receive_what_is_due(std::size_t pp, const Op& op, std::int32_t i) {
        const Program& p = programs_[pp];
        for (auto it = posted_[pp].begin(); it != posted_[pp].end();) {
            const auto in = p.inputs(op);
            if (it->deadline > i && std::find(in.begin(), in.end(), it->tensor) == in.end()) {
                ++it;
                continue;
            }
            if (it->arrived.empty()) return false;
            for (std::size_t k = 0; k < here_[pp].size(); ++k) {
                const Piece &from = it->arrived[k], to = shaped(here_[pp][k], it->tensor);
                if (!from.type->same_place(*to.type)) fail("a message arrives as another type");
                write(here_[pp][k], it->tensor, from.x);
            }
            it = posted_[pp].erase(it);
        }
        return true;
    }

    // ---- redistributes ----
    std::vector<std::size_t> group_of(std::size_t rank, const Change& c, Holders holders) const {
        std::vector<int> members;
        if (holders == Holders::ends) members = {0, grid_.extent(Axis::pp) - 1};
        std::vector<std::size_t> group;
        for (const std::int64_t m : grid_.group(ranks_[rank], c.axes, members)) group.push_back(static_cast<std::size_t>(m));
        return group;
    }

    bool redistribute(std::size_t pp, const Op& op) {
        const Program& p = programs_[pp];
        const Change c = change(p.type(p.inputs(op)[0]), p.tables->type(p.attributes(op).types[0]).place);
        const Holders holders = p.tables->type(p.attributes(op).types[0]).place.holders;
        std::vector<std::size_t> coordinates = {pp};
        if (c.axes.has(Axis::pp) && moves_data(c.pair)) {
            coordinates.clear();
            for (const std::size_t rank : group_of(here_[pp][0], c, holders))
                coordinates.push_back(static_cast<std::size_t>(ranks_[rank][Axis::pp]));
            std::sort(coordinates.begin(), coordinates.end());
            coordinates.erase(std::unique(coordinates.begin(), coordinates.end()), coordinates.end());
            for (const std::size_t m : coordinates)
                if (!meets(m, p, op)) return false;
        }
        std::map<std::size_t, std::vector<std::vector<double>>> made;  // by rank, all before the first is written
        for (const std::size_t m : coordinates)
            for (const std::size_t rank : here_[m])
                for (std::size_t k = 0; k < op.inputs; ++k) made[rank].push_back(moved(rank, k, c, holders));
        for (const auto& [rank, values] : made)
            for (std::size_t k = 0; k < values.size(); ++k) write(rank, program(rank).outputs(current(rank))[k], values[k]);
        for (const std::size_t m : coordinates) finish(m);
        return true;
    }

    const Op& current(std::size_t rank) const {
        return program(rank).ops[static_cast<std::size_t>(at_[static_cast<std::size_t>(ranks_[rank][Axis::pp])])];
    }

    bool meets(std::size_t m, const Program& p, const Op& op) const {
        if (at_[m] >= static_cast<std::int32_t>(programs_[m].ops.size())) return false;
        const Op& other = programs_[m].ops[static_cast<std::size_t>(at_[m])];
        if (other.kind != Kind::redistribute || other.queue != op.queue) return false;
        for (const TensorId t : programs_[m].inputs(other))
            if (std::any_of(posted_[m].begin(), posted_[m].end(), [t](const Posted& r) { return r.tensor == t; })) return false;
        if (other.attributes != op.attributes || other.inputs != op.inputs ||
            !programs_[m].type(programs_[m].inputs(other)[0]).same_place(p.type(p.inputs(op)[0])))
            fail("coordinates meet at different moves");
        return true;
    }

    // This rank's piece of the k-th result: of the global value, as far as the group holds it.
    std::vector<double> moved(std::size_t rank, std::size_t k, const Change& c, Holders holders) {
        const Piece want = shaped(rank, program(rank).outputs(current(rank))[k]);
        std::vector<std::size_t> group = {rank};
        if (moves_data(c.pair)) group = group_of(rank, c, holders);
        bool keeps = true;
        if (c.pair == Pair::first_keeps)
            for (const Axis a : c.axes.list()) keeps = keeps && ranks_[rank][a] == 0;
        std::int64_t extent = 1;
        for (int d = 0; d < want.type->dims; ++d) extent *= want.type->shape[static_cast<std::size_t>(d)];
        std::vector<double> global(static_cast<std::size_t>(extent), 0.0);
        std::vector<bool> held(global.size(), false);
        const bool sums = c.pair == Pair::all_reduce || c.pair == Pair::reduce_scatter;
        for (const std::size_t m : group) {
            const Piece piece = read(m, program(m).inputs(current(m))[k]);
            for (std::size_t i = 0; i < piece.x.size(); ++i) {
                const auto e = static_cast<std::size_t>(element(piece, i));
                if (held[e] && !sums) fail("two ranks of a group hold the same element");
                global[e] = !held[e] ? piece.x[i] : c.max ? std::max(global[e], piece.x[i]) : global[e] + piece.x[i];
                held[e] = true;
            }
        }
        std::vector<double> out(want.x.size(), 0.0);
        for (std::size_t i = 0; i < out.size() && keeps; ++i) {
            const auto e = static_cast<std::size_t>(element(want, i));
            if (!held[e]) fail("no rank of the group holds an element that this move must bring");
            out[i] = global[e];
        }
        return out;
    }

    static std::int64_t element(const Piece& p, std::size_t i) {
        std::int64_t rest = static_cast<std::int64_t>(i), out = 0, scale = 1;
        for (std::size_t d = static_cast<std::size_t>(p.type->dims); d-- > 0;) {
            out += p.index[d][static_cast<std::size_t>(rest % p.shape[d])] * scale;
            rest /= p.shape[d];
            scale *= p.type->shape[d];
        }
        return out;
    }

    // ---- the result ----
    void collect() {
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
            const Program& p = program(rank);
            for (std::size_t u = 0; u < p.flats.size(); ++u) {
                const Flat& flat = p.flats[u];
                const Buffer* masters = nullptr;
                for (const Buffer& b : p.buffers) {
                    const std::string& name = p.tables->name(b.name);
                    if (b.persistent && (name == "W." + flat.unit || name == "P." + flat.unit)) masters = &b;  // P comes second
                }
                const int size = static_cast<int>(masters->bytes / flat.length);
                for (const FlatSegment& s : flat.segments)
                    collect(rank, p.parameters[static_cast<std::size_t>(s.parameter)], masters->offset + s.offset * size, size);
            }
        }
    }

    void collect(std::size_t rank, const Parameter& q, std::int64_t at, int size) {
        std::int64_t count = 1;
        for (const std::int64_t n : q.shape) count *= n;
        std::vector<double>& all = out_.weights[q.name];
        all.resize(static_cast<std::size_t>(count), std::numeric_limits<double>::quiet_NaN());
        for_each_element(rank, q, [&](std::int64_t local, std::int64_t element) {
            const auto x = arenas_[rank].read(at + local * size, size);
            double& known = all[static_cast<std::size_t>(element)];
            if (!x) fail(q.name + " is not there when the step ends");
            if (!std::isnan(known) && known != *x) fail("the ranks disagree about " + q.name);
            known = *x;
        });
    }

    const std::vector<Program>& programs_;
    const Grid& grid_;
    const Settings& settings_;
    std::vector<Coordinate> ranks_;
    std::vector<std::vector<std::size_t>> here_;  // ranks of each pp coordinate: they run the same text, op by op together
    std::vector<Arena> arenas_;
    std::vector<std::int32_t> at_;
    std::vector<std::deque<Posted>> posted_;
    std::vector<std::multimap<std::int32_t, const Buffer*>> dying_;
    std::map<std::pair<std::size_t, TypeId>, IndexLists> index_;
    int step_ = 0;
    Numbers out_;
};

double worst(const std::vector<double>& a, const std::vector<double>& b) {
    if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
    double most = 0, scale = 1e-30;
    for (std::size_t i = 0; i < a.size(); ++i) {
        if (!std::isfinite(a[i]) || !std::isfinite(b[i])) return std::numeric_limits<double>::infinity();
        most = std::max(most, std::abs(a[i] - b[i]));
        scale = std::max(scale, std::abs(b[i]));
    }
    return most / scale;
}

}  // namespace

Numbers interpret(const std::vector<Program>& programs, const Settings& settings) { return Machine(programs, settings).run(); }

double nudge_direction(const std::string& parameter, std::int64_t element) {
    return random_normal(hash_text(parameter) + 1, static_cast<std::uint64_t>(element));
}

double difference(const Numbers& a, const Numbers& b) {
    double most = std::max({worst(a.loss, b.loss), worst(a.norm2, b.norm2), worst(a.tokens, b.tokens)});
    if (a.weights.size() != b.weights.size()) return std::numeric_limits<double>::infinity();
    for (const auto& [name, x] : a.weights) {
        const auto it = b.weights.find(name);
        most = std::max(most, it == b.weights.end() ? std::numeric_limits<double>::infinity() : worst(x, it->second));
    }
    return most;
}

}  // namespace quadrille::test
