// Each typing rule: what it accepts, what comes out, what it refuses.
#include "ir/program.hpp"
#include "ir/table.hpp"

#include <doctest.h>

using namespace quadrille;

namespace {

// dp 2, tp 2 x 3, sp 2, pp 2; every dim below is a multiple of 12.
struct Bench {
    std::shared_ptr<Tables> tables = std::make_shared<Tables>(Grid::of_user_axes(2, 6, 2, 2, 2, 3, {"tp", "sp", "dp", "pp"}));
    Program p{tables};
    Where where{Part::forward, tables->intern("unit"), 0, -1};

    TensorId x(std::initializer_list<std::int64_t> shape, std::initializer_list<Cuts> cuts = {}, AxisSet sum = {},
               DType t = DType::f32) {
        Placement place;
        std::size_t d = 0;
        for (const Cuts& c : cuts) place.cuts[d++] = c;
        place.partial_sum = sum;
        return p.declare("x", TensorType(shape, t, place));
    }
    std::vector<TensorId> all(Kind k, std::vector<TensorId> in, const Attributes& a = {}) {
        return p.add(k, std::move(in), a, where);
    }
    std::string typed(Kind k, std::vector<TensorId> in, const Attributes& a = {}) {
        return text(p.type(all(k, std::move(in), a)[0]));
    }
    std::string typed(Kind k, const char* signature, std::vector<TensorId> in) {
        Attributes a;
        a.signature = signature;
        return typed(k, std::move(in), a);
    }
};

const Cuts none, tp = {{Axis::tp}}, tq = {{Axis::tp}, {Axis::tq}}, sp = {{Axis::sp}}, dp = {{Axis::shard}},
                 sp_tp = {{Axis::sp}, {Axis::tp}};

}  // namespace

TEST_CASE("signatures are read") {
    const Signature s = parse_signature("bsh,vh->bsv");
    CHECK(s.in == std::vector<std::string>{"bsh", "vh"});
    CHECK(s.out == std::vector<std::string>{"bsv"});
    CHECK(parse_signature(",->").in == std::vector<std::string>{"", ""});
    CHECK(parse_signature("bsh,bsh->h,h").out.size() == 2);
    CHECK_THROWS_AS(parse_signature("bsh,vh"), std::logic_error);
}

TEST_CASE("matmul: column, row, both and neither") {
    Bench b;
    const TensorId x = b.x({12, 12, 24}, {dp, sp}), w = b.x({36, 24}, {tp});
    CHECK(b.typed(Kind::matmul, "bsh,fh->bsf", {x, w}) == "f32[12/shard,12/sp,36/tp]");
    const TensorId y = b.x({12, 12, 36}, {dp, sp, tp}), down = b.x({24, 36}, {none, tp});
    CHECK(b.typed(Kind::matmul, "bsf,hf->bsh", {y, down}) == "f32[12/shard,12/sp,24]+sum:tp");
    CHECK(b.typed(Kind::matmul, "bsf,bsh->hf", {y, x}) == "f32[24,36/tp]+sum:shard+sum:sp");
    CHECK_THROWS_AS(b.typed(Kind::matmul, "bsf,hf->bsh", {y, b.x({24, 36})}), TypingError);        // 'f' cut in two ways
    CHECK_THROWS_AS(b.typed(Kind::matmul, "bsh,fh->bsf", {x, b.x({36, 36})}), TypingError);        // 'h' of two sizes
    CHECK_THROWS_AS(b.typed(Kind::matmul, "bsh,fh->bsf", {x, b.x({36, 24}, {sp})}), TypingError);  // sp cuts two indices
    CHECK_THROWS_AS(b.typed(Kind::matmul, "bsh,fh->bsf", {x, b.x({36, 24}, {}, {}, DType::bf16)}), TypingError);
    CHECK_THROWS_AS(b.typed(Kind::matmul, "bsh,fh->bsf", {x}), TypingError);
}

TEST_CASE("a Partial operand only where the op is linear, one at a time") {
    Bench b;
    const TensorId part = b.x({12, 12, 24}, {}, Axis::tp), whole = b.x({12, 12, 24}), w = b.x({36, 24}),
                   w_part = b.x({36, 24}, {}, Axis::tp);
    CHECK(b.typed(Kind::matmul, "bsh,fh->bsf", {part, w}) == "f32[12,12,36]+sum:tp");
    CHECK_THROWS_AS(b.typed(Kind::matmul, "bsh,fh->bsf", {part, w_part}), TypingError);
    CHECK_THROWS_AS(b.typed(Kind::gelu, {part}), TypingError);
    CHECK(b.typed(Kind::add, "bsh,bsh->bsh", {part, part}) == "f32[12,12,24]+sum:tp");
    CHECK_THROWS_AS(b.typed(Kind::add, "bsh,bsh->bsh", {part, whole}), TypingError);  // the whole one would count once per rank
    CHECK(b.typed(Kind::dropout, {part}) == "f32[12,12,24]+sum:tp");
    CHECK(b.typed(Kind::scale, {part}) == "f32[12,12,24]+sum:tp");
    Placement max;
    max.partial_max = Axis::tp;
    const TensorId m = b.p.declare("m", TensorType({12, 12, 24}, DType::f32, max));
    CHECK_THROWS_AS(b.typed(Kind::add, "bsh,bsh->bsh", {m, m}), TypingError);
}

TEST_CASE("a bias counts once") {
    Bench b;
    const TensorId x = b.x({12, 12, 24}, {dp, sp}), w = b.x({36, 24}, {tp}), bias = b.x({36}, {tp});
    CHECK(b.typed(Kind::matmul, "bsh,fh,f->bsf", {x, w, bias}) == "f32[12/shard,12/sp,36/tp]");
    CHECK(b.typed(Kind::matmul_gelu, "bsh,fh,f->bsf", {x, w, bias}) == "f32[12/shard,12/sp,36/tp]");
    CHECK_THROWS_AS(b.typed(Kind::matmul, "bsh,fh,f->bsf", {x, w, b.x({36})}), TypingError);
    const TensorId y = b.x({12, 12, 36}, {dp, sp, tp}), down = b.x({24, 36}, {none, tp});
    CHECK_THROWS_AS(b.typed(Kind::matmul, "bsf,hf,h->bsh", {y, down, b.x({24})}), TypingError);  // the product is Partial
    CHECK_THROWS_AS(b.typed(Kind::add, "bsh,h->bsh", {b.x({12, 12, 24}, {}, Axis::tp), b.x({24})}), TypingError);
}

TEST_CASE("sums, norms and pointwise kinds") {
    Bench b;
    const TensorId dy = b.x({12, 12, 24}, {dp, sp_tp});
    CHECK(b.typed(Kind::sum, "bsh->h", {dy}) == "f32[24]+sum:shard+sum:sp+sum:tp");
    const TensorId gain = b.x({24});
    CHECK(b.typed(Kind::norm, "bsh,h,h->bsh", {dy, gain, gain}) == "f32[12/shard,12/sp/tp,24]");
    CHECK_THROWS_AS(b.typed(Kind::norm, "bsh,h,h->bsh", {b.x({12, 12, 24}, {none, none, tp}), b.x({24}, {tp}), b.x({24}, {tp})}),
                    TypingError);
    CHECK(b.typed(Kind::norm_dw, "bsh,bsh->h,h", {dy, dy}) == "f32[24]+sum:shard+sum:sp+sum:tp");
    CHECK(b.typed(Kind::gelu_dx, {b.x({12, 12, 24}), b.x({12, 12, 24}, {}, Axis::tp)}) == "f32[12,12,24]+sum:tp");
    CHECK_THROWS_AS(b.typed(Kind::gelu_dx, {b.x({12, 12, 24}, {}, Axis::tp), b.x({12, 12, 24})}), TypingError);
    CHECK(b.all(Kind::swiglu_dx, {dy, dy, dy}).size() == 2);
    CHECK_THROWS_AS(b.typed(Kind::rotary, {b.x({12, 12, 12, 12}, {none, none, none, tp})}), TypingError);
    Attributes half;
    half.dtype = DType::bf16;
    half.signature = "bsh->bsh";
    CHECK(b.typed(Kind::cast, {dy}, half) == "bf16[12/shard,12/sp/tp,24]");
    const TensorId in_f16 = b.x({12, 12, 24}, {}, {}, DType::f16);
    CHECK(b.typed(Kind::gelu, {in_f16}) == "f16[12,12,24]");
    CHECK_THROWS_AS(b.typed(Kind::gelu_dx, {in_f16, b.x({12, 12, 24}, {}, {}, DType::bf16)}), TypingError);
}

TEST_CASE("the vocabulary's rows") {
    Bench b;
    const TensorId ids = b.x({12, 12}, {dp, sp}, {}, DType::i32), table = b.x({36, 24}, {tq});
    CHECK(b.typed(Kind::embedding, {ids, table}) == "f32[12/shard,12/sp,24]+sum:tp+sum:tq");
    Attributes a;
    a.types = {b.tables->intern(b.p.type(table))};
    const TensorId dy = b.x({12, 12, 24}, {dp, sp});
    CHECK(b.typed(Kind::embedding_dw, {ids, dy}, a) == "f32[36/tp/tq,24]+sum:shard+sum:sp");
    CHECK_THROWS_AS(b.typed(Kind::embedding, {b.x({12, 12}, {dp, sp}), table}), TypingError);  // ids are i32
    const TensorId logits = b.x({12, 12, 36}, {dp, sp, tp});
    CHECK(b.typed(Kind::logit_max, {logits}) == "f32[12/shard,12/sp]+max:tp");
    const TensorId max = b.x({12, 12}, {dp, sp});
    CHECK(b.typed(Kind::logit_sums, {logits, max, ids}) == "f32[2,12/shard,12/sp]+sum:tp");
    const TensorId sums = b.x({2, 12, 12}, {none, dp, sp}), mask = b.x({12, 12}, {dp, sp}, {}, DType::u8);
    CHECK(b.typed(Kind::token_loss, {sums, mask}) == "f64[]+sum:shard+sum:sp");
    CHECK_THROWS_AS(b.typed(Kind::token_loss, {b.x({2, 12, 12}, {none, dp, sp}, Axis::tp), mask}), TypingError);
    CHECK(b.typed(Kind::count, "bs,bs->", {mask, mask}) == "f64[]+sum:shard+sum:sp");
}

TEST_CASE("attention: key-value heads are cut by a prefix of the query heads' cut") {
    Bench b;
    const TensorId q = b.x({12, 12, 12, 12}, {dp, none, tq}), kv = b.x({12, 12, 2, 12}, {dp, none, tp});
    CHECK(b.typed(Kind::attention, {q, kv, kv}) == "f32[12/shard,12,12/tp/tq,12]");
    const auto out = b.all(Kind::attention, {q, kv, kv});
    const auto grads = b.all(Kind::attention_dx, {q, kv, kv, out[0], out[1], out[0]});
    CHECK(text(b.p.type(grads[0])) == "f32[12/shard,12,12/tp/tq,12]");
    CHECK(text(b.p.type(grads[1])) == "f32[12/shard,12,2/tp,12]+sum:tq");
    CHECK_THROWS_AS(b.typed(Kind::attention, {b.x({12, 12, 12, 12}, {dp, none, tp}), b.x({12, 12, 12, 12}, {dp, none, tq}),
                                              b.x({12, 12, 12, 12}, {dp, none, tq})}),
                    TypingError);
    CHECK_THROWS_AS(b.typed(Kind::attention, {q, kv, b.x({12, 12, 2, 12}, {dp})}), TypingError);
    CHECK_THROWS_AS(b.typed(Kind::attention, {b.x({12, 12, 12, 12}, {}, Axis::tp), kv, kv}), TypingError);
    const TensorId kv5 = b.x({12, 12, 5, 12}, {dp});
    CHECK_THROWS_AS(b.typed(Kind::attention, {q, kv5, kv5}), TypingError);
}

TEST_CASE("attention: a ring is complete after every turn, once each") {
    Bench b;
    const TensorId q = b.x({12, 12, 12, 12}, {dp, sp, tp});
    const auto turned = [&](std::int32_t j) { return b.x({12, 12, 12, 12}, {dp, {{Axis::sp, Layout::block, j}}, tp}); };
    Attributes ring;
    ring.ring = true;
    CHECK_THROWS_AS(b.typed(Kind::attention, {q, turned(0), turned(0)}), TypingError);  // keys are cut and it is no ring
    const TensorId k0 = turned(0), k1 = turned(1);
    const auto first = b.all(Kind::attention, {q, k0, k0}, ring);
    CHECK(b.p.type(first[0]).covers != 0);
    CHECK_THROWS_AS(b.typed(Kind::matmul, "bsnd,hnd->bsh", {first[0], b.x({24, 12, 12}, {none, tp})}),
                    TypingError);  // one step short
    ring.carries = true;
    Program::Options o;
    o.storage = first;
    const auto second = b.p.add(Kind::attention, {q, k1, k1, first[0], first[1]}, ring, b.where, o);
    CHECK(b.p.type(second[0]).covers == 0);
    CHECK_THROWS_AS(b.p.add(Kind::attention, {q, k0, k0, first[0], first[1]}, ring, b.where, o), TypingError);  // a turn repeated
    const TensorId mixed = turned(1);
    CHECK_THROWS_AS(b.p.add(Kind::attention, {q, k0, mixed, first[0], first[1]}, ring, b.where, o), TypingError);
}

TEST_CASE("running sums: every microbatch's every use, once") {
    Bench b;
    const TensorId x = b.x({12, 12, 24}), dy = b.x({12, 12, 36});
    Attributes a;
    a.signature = "bsf,bsh->fh";
    Program::Options o;
    o.writes_sum = true;
    const auto add = [&](int microbatch, int use, std::vector<TensorId> earlier) {
        o.use = use;
        o.adds = !earlier.empty();
        o.storage = earlier;
        std::vector<TensorId> in = {dy, x};
        in.insert(in.end(), earlier.begin(), earlier.end());
        return b.p.add(Kind::matmul, in, a, {Part::backward_weight, 0, microbatch, -1}, o)[0];
    };
    const TensorId g0 = add(0, 0, {}), g1 = add(1, 0, {g0});
    CHECK_THROWS_AS(add(1, 0, {g1}), TypingError);
    CHECK_THROWS_AS(add(1, 0, {b.x({36, 24})}), TypingError);  // no running sum
    Attributes join;
    join.types = {b.tables->intern(TensorType({1024}, DType::f32))};
    join.microbatches = 2;
    CHECK_NOTHROW(b.all(Kind::join, {g1}, join));
    CHECK_THROWS_AS(b.all(Kind::join, {g0}, join), TypingError);
    CHECK_THROWS_AS(b.all(Kind::join, {x}, join), TypingError);
    CHECK_THROWS_AS(b.typed(Kind::matmul, "bsh,fh->bsf", {x, g1}), TypingError);  // a running sum is no operand
    const TensorId total = add(1, 1, {add(0, 1, {g1})});
    CHECK_NOTHROW(b.all(Kind::join, {total}, join));
}

TEST_CASE("join: nothing Partial over tp, all Partial alike") {
    Bench b;
    const auto sum = [&](AxisSet partial, DType t = DType::f32) {
        Placement p;
        p.partial_sum = partial;
        TensorType type({24}, t, p, Book::gradients);
        type.covers = b.tables->covers({{0, 0}});
        return b.p.declare("g", type);
    };
    Attributes join;
    join.types = {b.tables->intern(TensorType({1024}, DType::f32, {}, Book::gradients))};
    join.microbatches = 1;
    CHECK(b.typed(Kind::join, {sum(Axis::shard), sum(Axis::shard)}, join) == "f32[1024]+sum:shard");
    CHECK_THROWS_AS(b.typed(Kind::join, {sum(Axis::tp)}, join), TypingError);
    CHECK_THROWS_AS(b.typed(Kind::join, {sum(Axis::shard), sum({})}, join), TypingError);
    CHECK_THROWS_AS(b.typed(Kind::join, {sum(Axis::shard, DType::bf16)}, join), TypingError);
    join.tied = true;
    CHECK(b.typed(Kind::join, {sum(Axis::shard)}, join) == "f32[1024]+sum:pp+sum:shard");
}

TEST_CASE("squares, update, loss") {
    Bench b;
    TensorType flat({6144}, DType::f32, {}, Book::gradients);
    flat.place.varies = tensor_axes;
    flat.place.cuts[0] = {{Axis::shard}, {Axis::sp}};
    flat.covers = b.tables->covers({{0, 0}});
    const TensorId g = b.p.declare("g", flat);
    Attributes a;
    a.which = tensor_axes;
    a.microbatches = 1;
    CHECK(b.typed(Kind::sum_squares, {g}, a) == "f64[]+sum:pp+sum:shard+sum:sp+sum:tp+sum:tq");
    TensorType state = flat;
    state.covers = 0;
    const TensorId w = b.p.declare("w", state), m = b.p.declare("m", state), v = b.p.declare("v", state);
    const TensorId norm = b.p.declare("n", TensorType({}, DType::f64)), part = b.x({}, {}, Axis::pp, DType::f64);
    CHECK(b.all(Kind::adamw, {w, g, norm, m, v}, a).size() == 3);
    CHECK_THROWS_AS(b.all(Kind::adamw, {w, g, part, m, v}, a), TypingError);
    CHECK_THROWS_AS(b.all(Kind::adamw, {w, w, norm, m, v}, a), TypingError);
    a.microbatches = 2;
    CHECK_THROWS_AS(b.all(Kind::adamw, {w, g, norm, m, v}, a), TypingError);  // a microbatch is missing
    a.microbatches = 1;
    TensorType whole = state;
    whole.place.cuts[0] = {};
    CHECK_THROWS_AS(b.all(Kind::adamw, {b.p.declare("w", whole), g, norm, m, v}, a), TypingError);
    TensorType loss({}, DType::f64);
    loss.covers = b.tables->covers({{0, 0}});
    CHECK(b.typed(Kind::mean_loss, {b.p.declare("l", loss), norm}, a) == "f64[]");
    CHECK_THROWS_AS(b.typed(Kind::mean_loss, {norm, norm}, a), TypingError);
    CHECK(b.typed(Kind::scale_loss, {norm}) == "f64[]");
    CHECK_THROWS_AS(b.typed(Kind::scale_loss, {b.x({})}), TypingError);
}

TEST_CASE("one op takes more operands than 16 bits count: every microbatch's mask") {
    Bench b;
    constexpr std::size_t n = 65536 + 2;
    const TensorId mask = b.p.declare("mask", TensorType({12, 12}, DType::u8));
    Attributes a;
    for (std::size_t i = 0; i < n; ++i) a.signature += i ? ",bs" : "bs";
    a.signature += "->";
    const TensorId tokens = b.all(Kind::count, std::vector<TensorId>(n, mask), a)[0];
    const Op& op = b.p.ops.back();
    CHECK(b.p.inputs(op).size() == n);
    REQUIRE(b.p.outputs(op).size() == 1);
    CHECK(b.p.outputs(op)[0] == tokens);
    CHECK(text(b.p.type(tokens)) == "f64[]");
}

TEST_CASE("a sum over pp says who holds it") {
    Bench b;
    const TensorId x = b.x({}, {}, Axis::pp, DType::f64);
    Placement to;
    CHECK_THROWS_AS(b.p.to(x, to, b.where), TypingError);
    to.holders = Holders::all;
    CHECK(text(b.p.type(b.p.to(x, to, b.where))) == "f64[]@all-pp");
    Placement elsewhere;
    elsewhere.holders = Holders::ends;
    CHECK_THROWS_AS(b.p.to(b.x({24}, {}, Axis::tp), elsewhere, b.where), TypingError);
}
