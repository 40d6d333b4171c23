// The typing rule of attention and of its gradient.
//
// Letters: b batch, s queries, t keys, n heads, g key-value heads, d head size. q_bsnd, k_btgd, v_btgd [, o_bsnd, lse_bsn, do_bsnd]
// [, document_start_bs] [, running results] -> o_bsnd, lse_bsn; backward -> dq_bsnd, dk_btgd, dv_btgd.
#include "ir/rules.hpp"

#include <algorithm>
#include <utility>

namespace quadrille {
namespace {

struct Operands {
    bool backward;
    const TensorType &q, &k, &v;
    Inputs given;    // all but the running results
    Inputs running;  // a ring's results up to the turn before, in the order of the outputs

    Operands(const Op& op, const Attributes& a, Inputs in, std::size_t fixed)
        : backward(op.kind == Kind::attention_dx), q(in[0]), k(in[1]), v(in[2]), given(in.first(fixed)), running(in.subspan(fixed)) {
        demand(running.size() == (a.carries ? backward ? 3u : 2u : 0u), "attention: the wrong number of operands");
    }
};

Operands operands(const Op& op, const Attributes& a, Inputs in) {
    const std::size_t fixed = attention_operands(op.kind, a.documents);
    demand(in.size() >= fixed, "attention: the wrong number of operands");
    return {op, a, in, fixed};
}

void check_shapes(const Operands& x) {
    for (const TensorType& t : x.given) {
        demand(!t.covers, "attention: an operand is incomplete");
        demand(t.place.partial().empty(), "attention: an operand is Partial");
    }
    const auto &q = x.q.shape, &k = x.k.shape;
    demand(x.k.same_place(x.v) && x.k.dtype == x.q.dtype, "attention: k and v differ");
    demand(x.q.dims == 4 && x.k.dims == 4 && q[0] == k[0] && q[3] == k[3] && q[1] == k[1], "attention: shapes differ");
    demand(q[2] % k[2] == 0, "attention: query heads are no multiple of key-value heads");
}

void check_cuts(const Operands& x, bool documents) {
    const auto &q = x.q.place.cuts, &k = x.k.place.cuts;
    demand(q[0] == k[0] && q[3].empty() && k[3].empty(), "attention: the batch is cut otherwise, or the head dim is cut");
    demand(q[2].starts_with(k[2]), "attention: the cut of the key-value heads is not a prefix of that of the query heads");
    if (!documents) return;
    const TensorType& starts = x.given.back();
    demand(starts.dtype == DType::i32 && starts.dims == 2 && starts.place.cuts[0] == q[0] && starts.place.cuts[1] == q[1],
           "attention: document starts lie otherwise than the queries");
}

// Whose keys these are: 0 where they are whole, or one's own.
std::int32_t turn_of(const Operands& x, const Attributes& a) {
    Cuts home = x.k.place.cuts[1];
    if (home.empty()) return 0;
    std::int32_t turn = 0;
    for (Cut& c : home.cut) turn = std::max(turn, std::exchange(c.turn, std::int32_t{0}));
    demand(home == x.q.place.cuts[1] && home.count == 1, "attention: a ring goes over the one axis that cuts the queries");
    demand(a.ring || a.unexpanded, "attention: keys are cut, so it must be one turn of a ring");
    return turn;
}

// The turns that the results cover; 0 when all are in, so that they are complete.
std::int32_t turns_covered(Tables& tables, const Operands& x, const Attributes& a) {
    const std::int32_t turn = turn_of(x, a);
    if (!a.ring) return 0;
    std::int32_t covers = tables.covers(Contribution{turn, 0});
    if (a.carries) {
        for (const TensorType& t : x.running) demand(t.covers == x.running[0].covers, "attention: the running states differ");
        covers = tables.joined(x.running[0].covers, covers);
    }
    const auto turns = tables.covers(covers).size();
    return turns == tables.grid().extent(x.q.place.cuts[1].cut[0].axis) ? 0 : covers;
}

// The queries' log-sum-exp: their placement without the head dim, which nobody cuts.
TensorType log_sums(const TensorType& q) {
    TensorType lse;
    lse.dims = 3;
    for (std::size_t d = 0; d < 3; ++d) {
        lse.shape[d] = q.shape[d];
        lse.place.cuts[d] = q.place.cuts[d];
    }
    return lse;
}

// Gradients of keys and values are Partial where queries of other ranks give their share.
TensorType key_gradient(const Operands& x, DType dtype) {
    const auto &q = x.q.place.cuts, &k = x.k.place.cuts;
    TensorType dk = x.k.in(Book::activations).of(dtype);
    for (std::size_t i = k[2].count; i < q[2].count; ++i) dk.place.partial_sum |= q[2].cut[i].axis;  // heads that share a key-value head
    if (k[1].empty()) dk.place.partial_sum |= q[1].axes();                                           // queries for which all keys are here
    return dk;
}

}  // namespace

Types attention_rule(Tables& tables, const Op& op, const Attributes& a, Inputs in) {
    const Operands x = operands(op, a, in);
    check_shapes(x);
    check_cuts(x, a.documents);
    const std::int32_t covers = turns_covered(tables, x, a);
    const DType running = a.ring ? DType::f32 : x.q.dtype;  // a ring's results are kept in fp32 until they are complete
    TensorType o = x.q.in(Book::activations).of(running), lse = log_sums(x.q);
    o.covers = covers;
    if (!x.backward) {
        lse.covers = covers;
        if (a.carries) demand(x.running[0].same_place(o) && x.running[1].same_place(lse), "attention: the running state is misplaced");
        return {o, lse};
    }
    demand(in[3].same_place(x.q) && in[4].same_place(lse) && in[5].same_place(x.q), "attention: o, lse or do is misplaced");
    TensorType dk = key_gradient(x, running);
    dk.covers = covers;
    const TensorType& dq = o;
    if (a.carries)
        demand(x.running[0].same_place(dq) && x.running[1].same_place(dk) && x.running[2].same_place(dk),
               "attention: a running gradient is misplaced");
    return {dq, dk, dk};
}

}  // namespace quadrille
