// Messages, redistributes and rings: dropped, repeated, misplaced, misdirected, mistyped.
#include "compile_mutations.hpp"

#include <algorithm>

namespace quadrille::test {
namespace {

bool is_move(const Program&, const Op& op) {
    return op.kind == Kind::redistribute || op.kind == Kind::send || op.kind == Kind::recv;
}
bool is_redistribute(const Program&, const Op& op) { return op.kind == Kind::redistribute; }
bool is_behind(const Program&, const Op& op) { return op.queue != Queue::compute; }
bool is_turn(const Program& p, const Op& op) { return p.attributes(op).ring && p.attributes(op).carries; }

// The move once more on its own result, under a new name that everybody reads.
bool reapply(const Site& s) {
    if (s.op().inputs != 1 || s.op().outputs != 1) return false;
    const TensorId y = s.out()[0], again = copy_tensor(s.p, y);
    Op op = s.op();
    set_operands(s.p, op, {y}, {again});
    insert_op(s.p, s.i + 1, op);
    rewire(s.p, s.i + 2, y, again);
    return true;
}

bool swap_with_next_move(const Site& s) {
    std::size_t j = s.i + 1;
    while (j < s.p.ops.size() && !is_move(s.p, s.p.ops[j])) ++j;
    if (j == s.p.ops.size()) return false;
    move_op(s.p, j, s.i);
    move_op(s.p, s.i + 1, j);
    return true;
}

bool swap_with_neighbour(const Site& s) {
    if (s.i + 1 >= s.p.ops.size()) return false;
    move_op(s.p, s.i + 1, s.i);
    return true;
}

bool partial_called_whole(const Site& s) {
    if (s.op().inputs == 0) return false;
    const TensorType& t = s.p.type(s.in()[0]);
    if (t.place.partial().empty()) return false;
    s.tensor(s.in()[0]).type = s.p.tables->intern(t.placed(t.place.whole()));
    return true;
}

bool whole_called_partial(const Site& s) {
    if (s.op().outputs == 0) return false;
    const TensorType& t = s.p.type(s.out()[0]);
    const AxisSet free = s.p.grid().real({Axis::tp, Axis::tq, Axis::sp, Axis::shard, Axis::replica}) - t.place.cut_axes() - t.place.partial();
    if (free.empty()) return false;
    Placement place = t.place;
    place.partial_sum |= s.random.one_of(free.list());
    s.tensor(s.out()[0]).type = s.p.tables->intern(t.placed(place));
    return true;
}

// Goes to another placement, and says so in the types of its results.
bool redirect(const Site& s, const Placement& to) {
    change_attributes(s, [&](Attributes& a) { a.types[0] = s.p.tables->intern(s.p.tables->type(a.types[0]).placed(to)); });
    for (const TensorId t : s.out()) s.tensor(t).type = s.p.tables->intern(s.p.type(t).placed(to));
    return true;
}

bool over_fewer_axes(const Site& s) {
    const Change c = change(s.p, s.op());
    if (c.axes.count() < 2 || (c.pair != Pair::all_reduce && c.pair != Pair::reduce_scatter)) return false;
    Placement to = s.p.destination(s.op());
    const Axis forgotten = s.random.one_of(c.axes.list());
    for (Cuts& cuts : to.cuts)
        if (cuts.axes().has(forgotten)) return false;
    (c.max ? to.partial_max : to.partial_sum) |= forgotten;
    return redirect(s, to);
}

std::size_t first_reader(const Program& p, std::size_t i, TensorId t) {
    std::size_t j = i + 1;
    while (j < p.ops.size() && std::find(p.inputs(p.ops[j]).begin(), p.inputs(p.ops[j]).end(), t) == p.inputs(p.ops[j]).end())
        ++j;
    return j;
}

bool receive_late(const Site& s) {
    const std::size_t j = first_reader(s.p, s.i, s.out()[0]);
    if (j == s.i + 1) return false;
    move_op(s.p, s.i, j - 1);
    return true;
}

bool receive_early(const Site& s) {
    const std::size_t by = std::min(s.i, 1 + s.random.below(40));
    if (by == 0) return false;
    move_op(s.p, s.i, s.i - by);
    return true;
}

bool send_late(const Site& s) {
    const std::size_t to = std::min(s.p.ops.size() - 1, s.i + 1 + s.random.below(40));
    if (to == s.i) return false;
    move_op(s.p, s.i, to);
    return true;
}

bool payloads_exchanged(const Site& s) {
    for (std::size_t j = s.i + 1; j < s.p.ops.size(); ++j) {
        const Op& other = s.p.ops[j];
        if (other.kind != Kind::send || s.p.attributes(other).peer != s.attributes().peer) continue;
        std::swap(s.input(0), s.p.operands[static_cast<std::size_t>(other.first)]);
        return true;
    }
    return false;
}

bool wrong_peer(const Site& s) {
    const int pp = s.p.grid().extent(Axis::pp);
    change_attributes(s, [&](Attributes& a) {
        a.peer = (a.peer + 1 + static_cast<int>(s.random.below(static_cast<std::size_t>(pp - 1)))) % pp;
    });
    return true;
}

bool relabelled(const Site& s) {
    switch (s.random.below(3)) {
        case 0: s.op().microbatch += s.op().microbatch > 0 ? -1 : 1; break;
        case 1: change_attributes(s, [](Attributes& a) { a.chunk += a.chunk > 0 ? -1 : 1; }); break;
        default: change_attributes(s, [](Attributes& a) { a.gradient = !a.gradient; });
    }
    return true;
}

bool done_before_issued(const Site& s) {
    s.op().until = static_cast<std::int32_t>(s.random.below(s.i + 1));
    return true;
}
bool done_at_once(const Site& s) {
    if (s.op().until < 0) return false;
    s.op().until = -1;
    return true;
}
bool done_at_the_end(const Site& s) {
    const auto end = static_cast<std::int32_t>(s.p.ops.size());
    if (s.op().until == end) return false;
    s.op().until = end;
    return true;
}
bool wrong_queue(const Site& s) {
    const std::vector<Queue> all = {Queue::compute, Queue::collective, Queue::stage};
    s.op().queue = all[(static_cast<std::size_t>(s.op().queue) + 1 + s.random.below(2)) % 3];
    return true;
}

// A turn on the keys and values of the turn before.
bool ring_turn_repeated(const Site& s) {
    const auto in = s.in();
    std::size_t j = s.i;
    while (j > 0 && !(s.p.ops[j].kind == Kind::redistribute && s.p.outputs(s.p.ops[j])[0] == in[1])) --j;
    if (s.p.ops[j].kind != Kind::redistribute || s.p.outputs(s.p.ops[j])[0] != in[1]) return false;
    for (const std::size_t k : {1u, 2u}) s.input(k) = s.p.inputs(s.p.ops[j])[k - 1];
    return true;
}

bool ring_turn_skipped(const Site& s) {
    const Change c = change(s.p, s.op());
    if (c.pair != Pair::ring_shift) return false;
    Placement to = s.p.destination(s.op());
    Cut& cut = to.cuts[static_cast<std::size_t>(c.from_dim)].cut[0];
    const int n = s.p.grid().extent(cut.axis);
    cut.turn = (cut.turn + 1) % n;
    if (to == s.p.type(s.in()[0]).place) return false;
    return redirect(s, to);
}

// Two axes that cut one dim, in the other order: other heads, or other positions, on every rank.
bool nesting_exchanged(const Site& s) {
    for (const TensorId t : s.out()) {
        TensorType type = s.p.type(t);
        for (Cuts& cuts : type.place.cuts) {
            if (cuts.count < 2) continue;
            std::swap(cuts.cut[0], cuts.cut[1]);
            s.tensor(t).type = s.p.tables->intern(type);
            if (is_redistribute(s.p, s.op())) change_attributes(s, [&](Attributes& a) { a.types[0] = s.tensor(t).type; });
            return true;
        }
    }
    return false;
}

// Zigzag for block, or block for zigzag, in the result of the op and in what it says of it.
bool other_layout(const Site& s) {
    for (const TensorId t : s.out()) {
        TensorType type = s.p.type(t);
        for (Cuts& cuts : type.place.cuts)
            for (std::size_t k = 0; k < cuts.count; ++k) {
                Cut& c = cuts.cut[k];
                c.layout = c.layout == Layout::zigzag ? Layout::block : Layout::zigzag;
                if (!divides(s.p.grid(), type)) return false;
                s.tensor(t).type = s.p.tables->intern(type);
                if (s.op().kind == Kind::load) change_attributes(s, [&](Attributes& a) { a.types[0] = s.tensor(t).type; });
                return true;
            }
    }
    return false;
}

// Key-value heads cut by the axis that should replicate them: another group's keys for half of the query heads.
bool wrong_key_value_group(const Site& s) {
    bool changed = false;
    for (const std::size_t k : {1u, 2u}) {
        TensorType type = s.p.type(s.in()[k]);
        Cuts& heads = type.place.cuts[2];
        if (heads.count != 1 || s.p.grid().extent(Axis::tp) != s.p.grid().extent(Axis::tq)) continue;
        heads.cut[0].axis = Axis::tq;
        s.tensor(s.in()[k]).type = s.p.tables->intern(type);
        changed = true;
    }
    return changed;
}

}  // namespace

std::vector<MutationKind> move_mutations() {
    const Applies is_send = of_kind({Kind::send}), is_receive = of_kind({Kind::recv}), is_message = of_kind({Kind::send, Kind::recv});
    return {
        {"move dropped", is_move, drop},
        {"move bypassed", is_move, bypass},
        {"move made twice", is_move, repeat},
        {"move applied again", is_move, reapply},
        {"move swapped with the next", is_move, swap_with_next_move},
        {"move swapped with its neighbour", is_move, swap_with_neighbour},
        {"Partial declared whole", is_move, partial_called_whole},
        {"whole declared Partial", is_move, whole_called_partial},
        {"sum over fewer axes", is_redistribute, over_fewer_axes},
        {"receive late", is_receive, receive_late},
        {"receive early", is_receive, receive_early},
        {"send late", is_send, send_late},
        {"payloads of sends exchanged", is_send, payloads_exchanged},
        {"wrong peer", is_message, wrong_peer},
        {"message relabelled", is_message, relabelled},
        {"until before the issue", is_behind, done_before_issued},
        {"until at once", is_behind, done_at_once},
        {"until the end", is_behind, done_at_the_end},
        {"wrong queue", of_kind({Kind::redistribute, Kind::send, Kind::recv, Kind::matmul}), wrong_queue},
        {"ring one step short", is_turn, bypass_sum},
        {"ring turn repeated", is_turn, ring_turn_repeated},
        {"ring turn skipped", is_redistribute, ring_turn_skipped},
        {"nesting of cuts exchanged", makes_something, nesting_exchanged},
        {"wrong key-value group", of_kind({Kind::attention, Kind::attention_dx}), wrong_key_value_group},
        {"zigzag for block", of_kind({Kind::load, Kind::redistribute}), other_layout},
    };
}

}  // namespace quadrille::test
