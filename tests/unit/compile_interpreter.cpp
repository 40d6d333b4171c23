#include "compile_interpreter.hpp"

#include "compile_interpreter_ranks.hpp"
#include "ir/table.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <deque>

namespace quadrille::test {
namespace {

// The ranks of one pp coordinate run the same text, op by op together.
class Machine : Ranks {
  public:
    Machine(const std::vector<Program>& programs, const Settings& s)
        : Ranks(programs, s), at_(programs.size()), posted_(programs.size()), dying_(programs.size()) {
        for (std::size_t pp = 0; settings_.poison && pp < programs.size(); ++pp)
            for (const Buffer& b : programs[pp].buffers)
                if (!b.persistent && b.last >= 0) dying_[pp].emplace(b.last, &b);
    }

    Numbers run() {
        for (step_ = 0; step_ < settings_.steps; ++step_) run_step();
        out_.weights = weights();
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
        const auto [first, last] = dying_[pp].equal_range(i);
        for (auto it = first; it != last; ++it)
            for (const std::size_t rank : here_[pp]) arenas_[rank].poison(begin(p, *it->second), begin(p, *it->second) + it->second->bytes);
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
            arenas_[rank].poison(begin(p, w), begin(p, w) + w.bytes);
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
            const std::int64_t at = address(rank, t);
            arenas_[rank].poison(at, at + p.tables->bytes(p.tensors[static_cast<std::size_t>(t)].type));
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
        std::vector<std::size_t> group;
        for (const std::int64_t m : grid_.group(ranks_[rank], c.axes, pp_members(grid_, holders))) group.push_back(static_cast<std::size_t>(m));
        return group;
    }

    bool redistribute(std::size_t pp, const Op& op) {
        const Program& p = programs_[pp];
        const Change c = change(p, op);
        const Holders holders = p.destination(op).holders;
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
        const TensorType& from = programs_[m].type(programs_[m].inputs(other)[0]);
        if (!change(from, p.tables->type(programs_[m].attributes(other).types[0]).place).axes.has(Axis::pp)) return false;  // busy in its coordinate
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

    std::vector<std::int32_t> at_;            // by pp coordinate: the next op
    std::vector<std::deque<Posted>> posted_;  // receives that have not been waited for
    std::vector<std::multimap<std::int32_t, const Buffer*>> dying_;
    int step_ = 0;
    Numbers out_;
};

}  // namespace

Numbers interpret(const std::vector<Program>& programs, const Settings& settings) { return Machine(programs, settings).run(); }

}  // namespace quadrille::test
