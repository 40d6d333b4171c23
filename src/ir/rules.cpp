#include "ir/rules.hpp"

#include <algorithm>

namespace quadrille {
namespace {

void demand(bool ok, std::string why) {
    if (!ok) throw TypingError(std::move(why));
}

// The sets of microbatches that a running sum covers, with every use from 0 to uses-1 of each.
void demand_complete(const Tables& tables, const TensorType& t, int microbatches, int uses) {
    demand(t.covers != 0, "no running sum where a complete one is needed");
    const auto& have = tables.covers(t.covers);
    const bool all = static_cast<std::int64_t>(have.size()) == std::int64_t{microbatches} * uses &&
                     std::all_of(have.begin(), have.end(), [&](const Contribution& c) { return c.microbatch < microbatches && c.use < uses; });
    demand(all, fmt::format("a sum has {} contributions, not one of each of {} microbatches and {} uses", have.size(), microbatches, uses));
}

int uses_of(const Tables& tables, const TensorType& t) {
    int uses = 0;
    if (t.covers)
        for (const Contribution& c : tables.covers(t.covers)) uses = std::max(uses, c.use + 1);
    return uses;
}

}  // namespace

Types matmul_rule(Tables& tables, const Op& op, const Attributes& a, Inputs in) {
    if (in.size() < 3 && op.kind == Kind::matmul) return signature_rule(tables, op, a, in);
    demand(in.size() == 2 || in.size() == 3, "a matmul has two or three operands");
    // The bias is added once: the product must be whole, and the bias lie as the product's last letters do.
    const Signature s = parse_signature(a.signature);
    Attributes product = a;
    product.signature = s.in[0] + "," + s.in[1] + "->" + s.out[0];
    Op plain = op;
    plain.kind = Kind::matmul;
    product.dtype = in[0].dtype;
    TensorType y = signature_rule(tables, plain, product, in.first(2))[0];
    demand(y.place.partial().empty(), "a bias or an activation on a product that is Partial");
    if (in.size() == 3) {
        const std::string& letters = s.in.at(2);
        demand(static_cast<int>(letters.size()) == in[2].dims && in[2].dtype == y.dtype && in[2].place.partial().empty() && !in[2].covers, "the bias does not fit");
        for (std::size_t d = 0; d < letters.size(); ++d) {
            const std::size_t at = s.out[0].find(letters[d]);
            demand(at != std::string::npos && y.shape[at] == in[2].shape[d] && y.place.cuts[at] == in[2].place.cuts[d], "the bias is cut otherwise than the product");
        }
    }
    return op.kind == Kind::matmul_gelu ? Types{y, y} : Types{y};
}

Types embedding_dw_rule(Tables& tables, const Op& op, const Attributes& a, Inputs in) {
    Types with_table(in.begin(), in.end());
    with_table.push_back(tables.type(a.types.at(0)));  // 'v' is born in the output: its size and cuts are the table's
    return signature_rule(tables, op, a, with_table);
}

Types attention_rule(Tables& tables, const Op& op, const Attributes& a, Inputs in) {
    const bool backward = op.kind == Kind::attention_dx;
    const std::size_t fixed = (backward ? 6 : 3) + (a.documents ? 1 : 0), state = backward ? 3 : 2;
    demand(in.size() == fixed + (a.carries ? state : 0), "attention: the wrong number of operands");
    const TensorType &q = in[0], &k = in[1], &v = in[2];
    for (std::size_t i = 0; i < fixed; ++i) {
        demand(!in[i].covers, "attention: an operand is incomplete");
        demand(in[i].place.partial().empty(), "attention: an operand is Partial");
    }
    demand(k.same_place(v) && k.dtype == q.dtype, "attention: k and v differ");
    demand(q.dims == 4 && k.dims == 4 && q.shape[0] == k.shape[0] && q.shape[3] == k.shape[3] && q.shape[1] == k.shape[1], "attention: shapes differ");
    const auto &qc = q.place.cuts, &kc = k.place.cuts;
    demand(qc[0] == kc[0] && qc[3].empty() && kc[3].empty(), "attention: the batch is cut otherwise, or the head dim is cut");
    demand(qc[2].starts_with(kc[2]), "attention: the cut of the key-value heads is not a prefix of that of the query heads");
    demand(q.shape[2] % k.shape[2] == 0, "attention: query heads are no multiple of key-value heads");
    std::int16_t turn = 0;
    if (!kc[1].empty()) {
        Cuts home = kc[1];
        for (Cut& c : home.cut) { turn = std::max(turn, c.turn); c.turn = 0; }
        demand(home == qc[1] && home.count == 1, "attention: a ring goes over the one axis that cuts the queries");
        demand(a.ring || a.unexpanded, "attention: keys are cut, so it must be one turn of a ring");
    }
    std::int32_t covers = 0;
    if (a.ring) {
        covers = tables.covers({Contribution{turn, 0}});
        if (a.carries) {
            for (std::size_t i = fixed; i < in.size(); ++i) demand(in[i].covers == in[fixed].covers, "attention: the running states differ");
            covers = tables.joined(in[fixed].covers, covers);
        }
        const auto turns = static_cast<std::int64_t>(tables.covers(covers).size());
        if (turns == tables.grid().extent(qc[1].cut[0].axis)) covers = 0;  // every turn is in: complete
    }
    // A ring's running results are kept in fp32 until they are complete.
    const DType running = a.ring ? DType::f32 : q.dtype;
    TensorType o = q.in(Book::activations).of(running);
    o.covers = covers;
    TensorType lse;
    lse.dims = 3;
    for (std::size_t d = 0; d < 3; ++d) { lse.shape[d] = q.shape[d]; lse.place.cuts[d] = qc[d]; }
    if (a.documents) {
        const TensorType& starts = in[fixed - 1];
        demand(starts.dtype == DType::i32 && starts.dims == 2 && starts.place.cuts[0] == qc[0] && starts.place.cuts[1] == qc[1], "attention: document starts lie otherwise than the queries");
    }
    if (!backward) {
        lse.covers = covers;
        if (a.carries) demand(in[fixed].same_place(o) && in[fixed + 1].same_place(lse), "attention: the running state is misplaced");
        return {o, lse};
    }
    demand(in[3].same_place(q) && in[4].same_place(lse) && in[5].same_place(q), "attention: o, lse or do is misplaced");
    TensorType dk = k.in(Book::activations).of(running);
    for (std::size_t i = kc[2].count; i < qc[2].count; ++i) dk.place.partial_sum |= qc[2].cut[i].axis;  // heads that share a key-value head elsewhere
    if (kc[1].empty()) dk.place.partial_sum |= qc[1].axes();  // each rank's queries give their share for all keys
    dk.covers = covers;
    if (a.carries) demand(in[fixed].same_place(o) && in[fixed + 1].same_place(dk) && in[fixed + 2].same_place(dk), "attention: a running gradient is misplaced");
    return {o, dk, dk};
}

Types accumulate_rule(Tables& tables, const Op&, const Attributes&, Inputs in) {
    demand(in.size() == 2 && in[0].same_place(in[1]), "accumulate: the operands lie in different places");
    TensorType t = in[0];
    t.covers = tables.joined(in[0].covers, in[1].covers);
    return {t};
}

Types mean_loss_rule(Tables& tables, const Op&, const Attributes& a, Inputs in) {
    demand(in.size() == 2 && in[0].dims == 0 && in[0].place.partial().empty() && in[1].place.partial().empty(), "mean_loss: an operand is Partial");
    demand_complete(tables, in[0], a.microbatches, 1);
    return {TensorType({}, DType::f64, {}, Book::buffers)};
}

Types sum_squares_rule(Tables& tables, const Op&, const Attributes& a, Inputs in) {
    demand(in.size() == 1 && in[0].dims == 1 && in[0].place.partial().empty(), "sum_squares: of a gradient that is Partial");
    demand(in[0].covers != 0, "sum_squares: of something that is no complete gradient");
    TensorType t({}, DType::f64, {}, Book::buffers);
    t.place.partial_sum = in[0].place.cut_axes() | a.which;
    if (tables.grid().extent(Axis::pp) > 1 && in[0].place.holders == Holders::own) t.place.partial_sum |= Axis::pp;
    t.place.holders = in[0].place.holders;
    return {t};
}

Types update_rule(Tables& tables, const Op&, const Attributes& a, Inputs in) {
    demand(in.size() >= 3, "update: weights, gradient and norm are needed");
    const TensorType &w = in[0], &g = in[1], &norm = in[2];
    demand(g.place.partial().empty() && norm.place.partial().empty() && norm.dims == 0, "update: from a gradient or norm that is Partial");
    demand(w.dims == 1 && w.shape == g.shape && w.place.cuts == g.place.cuts && w.place.varies == g.place.varies, "update: weights and gradient are cut differently");
    demand_complete(tables, g, a.microbatches, 1);
    Types out = {w};
    for (const TensorType& state : in.subspan(3)) {
        demand(state.shape == w.shape && state.place.cuts == w.place.cuts && state.place.varies == w.place.varies, "update: weights and optimizer state are cut differently");
        out.push_back(state);
    }
    return out;
}

Types send_rule(Tables&, const Op&, const Attributes&, Inputs in) {
    demand(in.size() == 1 && !in[0].covers, "send: one complete tensor");
    return {};
}

Types declared_rule(Tables& tables, const Op&, const Attributes& a, Inputs in) {
    demand(in.empty(), "an op without operands has some");
    Types out;
    for (const TypeId t : a.types) out.push_back(tables.type(t));
    return out;
}

Types split_rule(Tables& tables, const Op&, const Attributes& a, Inputs in) {
    demand(in.size() == 1 && in[0].dims == 1 && in[0].place.partial().empty() && in[0].place.cut_axes().empty(), "split: views are taken of a whole flat buffer only");
    Types out;
    for (const TypeId t : a.types) out.push_back(tables.type(t));
    return out;
}

// All views agree but for tp, where they may be cut or whole; none is Partial over tp any more.
Types join_rule(Tables& tables, const Op&, const Attributes& a, Inputs in) {
    demand(!in.empty(), "join: nothing to join");
    TensorType flat = tables.type(a.types.at(0));
    for (const TensorType& t : in) {
        demand((t.place.partial() & tensor_axes).empty(), "join: a gradient is still Partial over tp");
        demand(t.place.partial_sum == in[0].place.partial_sum && t.place.partial_max.empty(), "join: gradients of one unit are Partial over different axes");
        demand(t.dtype == flat.dtype, "join: a gradient has another element type");
        demand_complete(tables, t, a.microbatches, uses_of(tables, t));
    }
    flat.place.partial_sum = in[0].place.partial_sum;
    if (a.tied) flat.place.partial_sum |= Axis::pp;
    std::vector<Contribution> all;
    for (int m = 0; m < a.microbatches; ++m) all.push_back({m, 0});
    flat.covers = tables.covers(all);
    return {flat};
}

}  // namespace quadrille
