#include "ir/rules.hpp"

namespace quadrille {
namespace {

// The run of microbatches that a sum covers, every use of each; their number must be `microbatches`.
Cover::Run complete_run(const Tables& tables, const TensorType& t, int microbatches) {
    demand(t.covers != 0, "no running sum where a complete one is needed");
    const Cover& have = tables.covers(t.covers);
    const Cover::Run first = have.runs().front();
    demand(have == Cover::complete(microbatches, have.uses(), first.first),
           fmt::format("a sum has {} contributions, not each of {} uses of {} microbatches", have.size(), have.uses(), microbatches));
    return first;
}

// Every microbatch from 0 to microbatches-1 is in the sum, once.
void demand_complete(const Tables& tables, const TensorType& t, int microbatches) {
    demand(complete_run(tables, t, microbatches).first == 0 && tables.covers(t.covers).uses() == 1,
           fmt::format("a sum has {} contributions, not one of each of {} microbatches", tables.covers(t.covers).size(), microbatches));
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
        const TensorType& bias = in[2];
        demand(static_cast<int>(letters.size()) == bias.dims && bias.dtype == y.dtype && bias.place.partial().empty() && !bias.covers,
               "the bias does not fit");
        for (std::size_t d = 0; d < letters.size(); ++d) {
            const std::size_t at = s.out[0].find(letters[d]);
            demand(at != std::string::npos && y.shape[at] == bias.shape[d] && y.place.cuts[at] == bias.place.cuts[d],
                   "the bias is cut otherwise than the product");
        }
    }
    return op.kind == Kind::matmul_gelu ? Types{y, y} : Types{y};
}

Types embedding_dw_rule(Tables& tables, const Op& op, const Attributes& a, Inputs in) {
    Types with_table(in.begin(), in.end());
    with_table.push_back(tables.type(a.types.at(0)));  // 'v' is born in the output: its size and cuts are the table's
    return signature_rule(tables, op, a, with_table);
}

Types accumulate_rule(Tables& tables, const Op&, const Attributes&, Inputs in) {
    demand(in.size() == 2 && in[0].same_place(in[1]), "accumulate: the operands lie in different places");
    TensorType t = in[0];
    t.covers = tables.joined(in[0].covers, in[1].covers);
    return {t};
}

Types mean_loss_rule(Tables& tables, const Op&, const Attributes& a, Inputs in) {
    demand(in.size() == 2 && in[0].dims == 0 && in[0].place.partial().empty() && in[1].place.partial().empty(), "mean_loss: an operand is Partial");
    demand_complete(tables, in[0], a.microbatches);
    return {TensorType({}, DType::f64, {}, Book::buffers)};
}

Types sum_squares_rule(Tables& tables, const Op&, const Attributes& a, Inputs in) {
    demand(in.size() == 1 && in[0].dims == 1 && in[0].place.partial().empty(), "sum_squares: of a gradient that is Partial");
    demand(in[0].covers != 0, "sum_squares: of something that is no complete gradient");
    TensorType t({}, DType::f64, {}, Book::buffers);
    t.tier = in[0].tier;
    t.place.partial_sum = in[0].place.cut_axes() | a.which;
    if (tables.grid().extent(Axis::pp) > 1 && in[0].place.holders == Holders::own) t.place.partial_sum |= Axis::pp;
    t.place.holders = in[0].place.holders;
    return {t};
}

Types update_rule(Tables& tables, const Op&, const Attributes& a, Inputs in) {
    demand(in.size() >= 3, "update: weights, gradient and norm are needed");
    const TensorType &w = in[0], &g = in[1], &norm = in[2];
    demand(g.place.partial().empty() && norm.place.partial().empty() && norm.dims == 0, "update: from a gradient or norm that is Partial");
    const auto cut_alike = [&w](const TensorType& t) {
        return w.shape == t.shape && w.place.cuts == t.place.cuts && w.place.varies == t.place.varies;
    };
    demand(w.dims == 1 && cut_alike(g), "update: weights and gradient are cut differently");
    demand_complete(tables, g, a.microbatches);
    Types out = {w};
    for (const TensorType& state : in.subspan(3)) {
        demand(cut_alike(state), "update: weights and optimizer state are cut differently");
        out.push_back(state);
    }
    return out;
}

Types copy_rule(Tables&, const Op&, const Attributes&, Inputs in) {
    demand(in.size() == 1, "copy: one tensor");
    return {in[0]};
}

Types move_rule(Tables&, const Op&, const Attributes& a, Inputs in) {
    demand(in.size() == 1, "move: one tensor");
    demand(in[0].tier != a.tier, fmt::format("move: from {} memory to {} memory", name_of(in[0].tier), name_of(a.tier)));
    demand(in[0].tier == Tier::host || a.tier == Tier::host, "move: between device and nvme the way goes through host memory");
    TensorType t = in[0];
    t.tier = a.tier;
    return {t};
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
    demand(in.size() == 1 && in[0].dims == 1 && in[0].place.partial().empty() && in[0].place.cut_axes().empty(),
           "split: views are taken of a whole flat buffer only");
    Types out;
    for (const TypeId t : a.types) out.push_back(tables.type(t));
    return out;
}

// All views agree but for tp, where they may be cut or whole; none is Partial over tp any more. They are sums over the same microbatches: all
// of the step, or one whose sum is reduced by itself.
Types join_rule(Tables& tables, const Op&, const Attributes& a, Inputs in) {
    demand(!in.empty(), "join: nothing to join");
    TensorType flat = tables.type(a.types.at(0));
    const std::int32_t first = complete_run(tables, in[0], a.microbatches).first;
    for (const TensorType& t : in) {
        demand((t.place.partial() & tensor_axes).empty(), "join: a gradient is still Partial over tp");
        demand(t.place.partial_sum == in[0].place.partial_sum && t.place.partial_max.empty(),
               "join: gradients of one unit are Partial over different axes");
        demand(t.dtype == flat.dtype, "join: a gradient has another element type");
        demand(complete_run(tables, t, a.microbatches).first == first, "join: gradients of one unit are sums over different microbatches");
    }
    flat.place.partial_sum = in[0].place.partial_sum;
    if (a.tied) flat.place.partial_sum |= Axis::pp;
    flat.covers = tables.covers(Cover::complete(a.microbatches, 1, first));
    return {flat};
}

}  // namespace quadrille
