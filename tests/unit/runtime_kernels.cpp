// Every kind's kernel as the runtime binds it: on a grid the pieces are those of one rank, and one rank does what the op says.
#include "runtime_bench.hpp"

#include <algorithm>
#include <cmath>

using namespace quadrille;
using namespace quadrille::test;

namespace {

// replica 1, shard 2, sp 2, tp 2, tq 2
const Grid grid = Grid::of_user_axes(2, 4, 1, 2, 2, 2, {"tp", "sp", "dp", "pp"});

Placement place(std::initializer_list<Cuts> cuts) {
    Placement p;
    std::size_t d = 0;
    for (const Cuts& c : cuts) p.cuts[d++] = c;
    return p;
}
const Cuts b_cut = Cuts::along(grid, data_axes), t_cut = Cuts::along(grid, tensor_axes), kv_cut = Cuts::along(grid, Axis::tp);
const Cuts s_cut = Cuts::along(grid, Axis::sp, Layout::zigzag), none;

Case make(Kind kind, const Attributes& a, std::vector<TensorType> inputs) {
    Case k{kind, a, std::move(inputs), {}};
    std::uint64_t key = 1;
    for (const TensorType& t : k.inputs) k.values.push_back(deviates(t, key++));
    return k;
}

Attributes signature(std::string s, DType dtype = DType::f32) {
    Attributes a;
    a.signature = std::move(s);
    a.dtype = dtype;
    return a;
}

void check_close(const std::vector<Values>& a, const std::vector<Values>& b, double tolerance = 1e-5) {
    REQUIRE(a.size() == b.size());
    for (std::size_t k = 0; k < a.size(); ++k) {
        REQUIRE(a[k].size() == b[k].size());
        double worst = 0;
        for (std::size_t i = 0; i < a[k].size(); ++i) worst = std::max(worst, std::abs(a[k][i] - b[k][i]) / (1 + std::abs(b[k][i])));
        CHECK(worst < tolerance);
    }
}

// The grid's pieces together are what one rank computes.
std::vector<Values> check_grid(const Case& k, double tolerance = 1e-5) {
    const auto one = everywhere(Grid(), on_one_rank(k));
    check_close(everywhere(grid, k), one, tolerance);
    return one;
}

// a[..] b[..] (+ bias) in float64, letter by letter.
Values einsum(const Case& k) {
    const Signature s = parse_signature(k.attributes.signature);
    std::map<char, std::int64_t> size, at;
    std::string letters;
    for (std::size_t i = 0; i < 2; ++i)
        for (std::size_t d = 0; d < s.in[i].size(); ++d) {
            if (!size.contains(s.in[i][d])) letters += s.in[i][d];
            size[s.in[i][d]] = k.inputs[i].shape[d];
        }
    const auto index = [&](const std::string& of) {
        std::int64_t i = 0;
        for (const char l : of) i = i * size[l] + at[l];
        return static_cast<std::size_t>(i);
    };
    std::int64_t total = 1, out = 1;
    for (const char l : letters) total *= size[l];
    for (const char l : s.out[0]) out *= size[l];
    Values y(static_cast<std::size_t>(out));
    for (std::int64_t n = 0; n < total; ++n) {
        std::int64_t rest = n;
        for (const char l : letters) { at[l] = rest % size[l]; rest /= size[l]; }
        y[index(s.out[0])] += k.values[0][index(s.in[0])] * k.values[1][index(s.in[1])];
    }
    if (s.in.size() < 3) return y;
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += k.values[2][i % k.values[2].size()];  // its letters are the last
    return y;
}

const DType f = DType::f32;
const TensorType x_bsh({4, 8, 6}, f, place({b_cut, s_cut, none})), w_fh({8, 6}, f, place({t_cut, none}));
const TensorType y_bsf({4, 8, 8}, f, place({b_cut, s_cut, t_cut}));
const TensorType o_bsnd({4, 8, 4, 2}, f, place({b_cut, s_cut, t_cut, none})), w_hnd({6, 4, 2}, f, place({none, t_cut, none}));

}  // namespace

TEST_CASE("matmul: every order of letters the model and its gradients use") {
    struct Product { const char* signature; TensorType a, b; };
    const TensorType w_ndh({4, 2, 6}, f, place({t_cut, none, none}));
    const TensorType a_rh({3, 6}, f), u_bsr({4, 8, 3}, f, place({b_cut, s_cut, none})), b_ndr({4, 2, 3}, f, place({t_cut, none, none}));
    const TensorType a_rnd({3, 4, 2}, f, place({none, t_cut, none}));
    const std::vector<Product> products = {
        {"bsh,fh->bsf", x_bsh, w_fh},          {"bsf,fh->bsh", y_bsf, w_fh},          {"bsf,bsh->fh", y_bsf, x_bsh},
        {"bsnd,hnd->bsh", o_bsnd, w_hnd},      {"bsh,hnd->bsnd", x_bsh, w_hnd},       {"bsh,bsnd->hnd", x_bsh, o_bsnd},
        {"bsh,ndh->bsnd", x_bsh, w_ndh},       {"bsnd,bsh->ndh", o_bsnd, x_bsh},      {"fh,bsh->bsf", w_fh, x_bsh},
        {"bsf,bsh->hf", y_bsf, x_bsh},
        // adapters of q (x A, u B and the gradients of B, u and A), and of o
        {"bsh,rh->bsr", x_bsh, a_rh},          {"bsr,ndr->bsnd", u_bsr, b_ndr},        {"bsnd,bsr->ndr", o_bsnd, u_bsr},
        {"bsnd,ndr->bsr", o_bsnd, b_ndr},      {"bsr,bsh->rh", u_bsr, x_bsh},          {"bsr,rh->bsh", u_bsr, a_rh},
        {"bsnd,rnd->bsr", o_bsnd, a_rnd},      {"bsr,rnd->bsnd", u_bsr, a_rnd},        {"bsr,bsnd->rnd", u_bsr, o_bsnd},
    };
    for (const Product& p : products) {
        CAPTURE(p.signature);
        const Case k = make(Kind::matmul, signature(p.signature), {p.a, p.b});
        check_close(check_grid(k), {einsum(k)});
    }
}

TEST_CASE("matmul: bias, gelu, sums in fp32 and 16 bits") {
    const TensorType bias_f({8}, f, place({t_cut}));
    const Case biased = make(Kind::matmul, signature("bsh,fh,f->bsf"), {x_bsh, w_fh, bias_f});
    check_close(check_grid(biased), {einsum(biased)});
    Case gelu = biased;
    gelu.kind = Kind::matmul_gelu;
    const auto both = check_grid(gelu);
    check_close({both[0]}, {einsum(biased)});
    for (std::size_t i = 0; i < both[1].size(); ++i) {
        const double z = both[0][i];
        CHECK(both[1][i] == doctest::Approx(z / 2 * (1 + std::tanh(0.7978845608028654 * (z + 0.044715 * z * z * z)))).epsilon(1e-4));
    }
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
        Case sum = make(Kind::matmul, signature("bsf,bsh->fh", dtype), {y_bsf, x_bsh});
        Values wanted = einsum(sum);
        sum.adds = true;
        sum.earlier = {deviates(w_fh, 9)};
        for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] += sum.earlier[0][i];
        check_close(check_grid(sum, dtype == f ? 1e-5 : 0.05), {wanted}, dtype == f ? 1e-5 : 0.01);
    }
    CHECK_THROWS(everywhere(Grid(), make(Kind::matmul, signature("bsh,bsf->bf"), {x_bsh.placed({}), y_bsf.placed({})})));
}

TEST_CASE("16-bit operands") {
    for (const DType t : {DType::bf16, DType::f16}) {
        const Case k = make(Kind::matmul, signature("bsh,fh->bsf", t), {x_bsh.of(t), w_fh.of(t)});
        check_close(check_grid(k, 0.02), {einsum(k)}, 0.02);
        const Case dw = make(Kind::matmul, signature("bsf,bsh->fh"), {y_bsf.of(t), x_bsh.of(t)});
        check_close(check_grid(dw), {einsum(dw)});
    }
}

TEST_CASE("add, sum, cast, accumulate") {
    const Case residual = make(Kind::add, signature("bsh,bsh->bsh"), {x_bsh, x_bsh});
    const auto y = check_grid(residual);
    CHECK(y[0][17] == doctest::Approx(residual.values[0][17] + residual.values[1][17]));
    const TensorType bias_nd({4, 2}, f, place({t_cut, none}));
    check_grid(make(Kind::add, signature("bsnd,nd->bsnd"), {o_bsnd, bias_nd}));
    Case sum = make(Kind::sum, signature("bsnd->nd"), {o_bsnd});
    Values wanted(8);
    for (std::size_t i = 0; i < sum.values[0].size(); ++i) wanted[i % 8] += sum.values[0][i];
    check_close(check_grid(sum), {wanted});
    sum.adds = true;
    sum.earlier = {Values(8, 100.0)};
    for (double& w : wanted) w += 100;
    check_close(check_grid(sum), {wanted});
    check_grid(make(Kind::cast, signature("bsnd->bsnd", DType::bf16), {o_bsnd}));
}

TEST_CASE("embedding and its gradient: rows of a cut table") {
    const TensorType ids({4, 8}, DType::i32, place({b_cut, s_cut})), table({12, 6}, f, place({t_cut, none}));
    Case k = make(Kind::embedding, {}, {ids, table});
    for (std::size_t i = 0; i < k.values[0].size(); ++i) k.values[0][i] = static_cast<double>(i * 7 % 12);
    const auto y = check_grid(k);
    CHECK(y[0][6 * 3 + 2] == k.values[1][9 * 6 + 2]);
    Case dw = make(Kind::embedding_dw, {}, {ids, x_bsh});
    dw.values[0] = k.values[0];
    Bench b(grid);
    dw.attributes.types = {b.tables->intern(table)};
    const TensorId in0 = b.input(ids), in1 = b.input(x_bsh);
    const TensorId out = b.program.add(Kind::embedding_dw, {in0, in1}, dw.attributes, {})[0];
    b.place();
    Copies got;
    Values wanted(12 * 6);
    for (std::int64_t r = 0; r < grid.ranks(); ++r) {
        b.set(grid.coordinate(r), in0, dw.values[0]);
        b.set(grid.coordinate(r), in1, dw.values[1]);
        b.run(grid.coordinate(r), 0, {});
        b.add(grid.coordinate(r), out, got);
    }
    for (std::size_t t = 0; t < 32; ++t)
        for (std::size_t h = 0; h < 6; ++h) wanted[static_cast<std::size_t>(dw.values[0][t]) * 6 + h] += dw.values[1][t * 6 + h];
    check_close({one_of(got)}, {wanted});
}

TEST_CASE("norms") {
    const TensorType h({6}, f);
    for (const bool rms : {false, true}) {
        Attributes a = signature(rms ? "bsh,h->bsh" : "bsh,h,h->bsh");
        a.rms = rms;
        a.eps = 1e-5;
        std::vector<TensorType> in = {x_bsh, h};
        if (!rms) in.push_back(h);
        check_grid(make(Kind::norm, a, in));
        a.signature = rms ? "bsh,bsh,h->bsh,bsh" : "bsh,bsh,h,h->bsh,bsh";
        in.insert(in.begin(), x_bsh);
        const auto y = check_grid(make(Kind::residual_norm, a, in));
        CHECK(y.size() == 2);
        a.signature.clear();
        check_grid(make(Kind::norm_dx, a, {x_bsh, h, x_bsh}));
        a.signature = rms ? "bsh,bsh->h" : "bsh,bsh->h,h";
        Case dw = make(Kind::norm_dw, a, {x_bsh, x_bsh});
        const auto first = check_grid(dw);
        dw.adds = true;
        dw.earlier.assign(first.size(), Values(6, 50.0));
        const auto second = check_grid(dw);
        CHECK(second[0][2] == doctest::Approx(first[0][2] + 50));
    }
}

TEST_CASE("pointwise functions") {
    check_grid(make(Kind::gelu, {}, {y_bsf}));
    check_grid(make(Kind::gelu_dx, {}, {y_bsf, y_bsf}));
    Attributes by;
    by.factor = -1.5;
    const Case scaled = make(Kind::scale, by, {y_bsf});
    const auto product = check_grid(scaled, 1e-12);
    for (std::size_t i = 0; i < product[0].size(); ++i) CHECK(product[0][i] == doctest::Approx(-1.5 * scaled.values[0][i]));
    check_grid(make(Kind::swiglu, {}, {y_bsf, y_bsf}));
    const auto d = check_grid(make(Kind::swiglu_dx, {}, {y_bsf, y_bsf, y_bsf}));
    CHECK(d.size() == 2);
}

TEST_CASE("dropout and rotary follow global indices") {
    Attributes a;
    a.rate = 0.5;
    a.stream = 4;
    Case k = make(Kind::dropout, a, {x_bsh});
    const auto y = check_grid(k, 1e-12);
    const std::uint64_t key = random_key(5, 3, 4);  // seed, step, stream
    for (std::size_t i = 0; i < y[0].size(); ++i) {
        const std::uint64_t element = i + 4 * 8 * 6;  // microbatch 1 comes after the 4 sequences of microbatch 0
        CHECK(y[0][i] == (keeps(key, element, keep_threshold(0.5)) ? 2 * k.values[0][i] : 0.0));
    }
    k.microbatch = 0;
    CHECK(everywhere(grid, k) != y);
    Attributes r;
    r.base = 10000;
    check_grid(make(Kind::rotary, r, {o_bsnd}), 1e-6);
}

TEST_CASE("attention: key-value heads shared, documents, dropout, forward and backward") {
    const TensorType q({4, 8, 4, 2}, f, place({b_cut, none, t_cut, none})), k({4, 8, 2, 2}, f, place({b_cut, none, kv_cut, none}));
    const TensorType lse({4, 8, 4}, f, place({b_cut, none, t_cut})), starts({4, 8}, DType::i32, place({b_cut, none}));
    Attributes a;
    a.rate = 0.25;
    a.stream = 2;
    a.documents = true;
    Case forward = make(Kind::attention, a, {q, k, k, starts});
    for (std::size_t i = 0; i < forward.values[3].size(); ++i) forward.values[3][i] = i % 8 < 3 ? 0 : 3;
    const auto o = check_grid(forward);
    Case backward = make(Kind::attention_dx, a, {q, k, k, q, lse, q, starts});
    for (std::size_t i = 0; i < 3; ++i) backward.values[i] = forward.values[i];
    backward.values[3] = o[0];
    backward.values[4] = o[1];
    backward.values[6] = forward.values[3];
    check_grid(backward);
}

TEST_CASE("the loss over a cut and padded vocabulary") {
    const TensorType logits({4, 8, 12}, f, place({b_cut, s_cut, t_cut})), max({4, 8}, f, place({b_cut, s_cut}));
    const TensorType target({4, 8}, DType::i32, place({b_cut, s_cut}));
    const TensorType sums({2, 4, 8}, f, place({none, b_cut, s_cut})), mask({4, 8}, DType::u8, place({b_cut, s_cut})), scalar({}, DType::f64);
    Attributes a;
    a.vocab = 10;  // the last rank has one real column and two of padding
    Case m = make(Kind::logit_max, a, {logits});
    const auto top = check_grid(m);
    Case s = make(Kind::logit_sums, a, {logits, max, target});
    s.values[0] = m.values[0];
    s.values[1] = top[0];
    for (std::size_t i = 0; i < s.values[2].size(); ++i) s.values[2][i] = static_cast<double>(i % 10);
    const auto both = check_grid(s);
    Values wanted(64);
    for (std::size_t t = 0; t < 32; ++t) {
        for (std::size_t v = 0; v < 10; ++v) wanted[t] += std::exp(m.values[0][t * 12 + v] - top[0][t]);
        wanted[32 + t] = m.values[0][t * 12 + t % 10] - top[0][t];
    }
    check_close(both, {wanted});
    Case loss = make(Kind::token_loss, {}, {sums, mask});
    loss.values[0] = both[0];
    double total = 0;
    for (std::size_t t = 0; t < 32; ++t) {
        loss.values[1][t] = t % 3 != 0;
        if (t % 3) total += std::log(wanted[t]) - wanted[32 + t];
    }
    CHECK(check_grid(loss)[0][0] == doctest::Approx(total).epsilon(1e-5));
    loss.adds = true;
    loss.earlier = {{7.0}};
    CHECK(check_grid(loss)[0][0] == doctest::Approx(total + 7).epsilon(1e-5));
    loss.adds = false;
    Case dloss = make(Kind::token_loss_dx, {}, {sums, mask, scalar});
    dloss.values[0] = both[0];
    dloss.values[1] = loss.values[1];
    const auto dsums = check_grid(dloss);
    Case dx = make(Kind::logit_sums_dx, a, {logits, max, target, sums});
    dx.values = {m.values[0], top[0], s.values[2], dsums[0]};
    const auto d = check_grid(dx);
    CHECK(d[0][11] == 0.0);
    Case count = make(Kind::count, signature("bs,bs->"), {mask, mask});
    count.values = {loss.values[1], loss.values[1]};
    CHECK(check_grid(count)[0][0] == 42);
}

TEST_CASE("1: the loss is the mean over counted tokens: one of loss 2 and nine of loss 4 make 3.8 wherever they lie, not 3") {
    const TensorType sums({2, 4, 12}, f, place({none, b_cut, s_cut})), mask({4, 12}, DType::u8, place({b_cut, s_cut})), scalar({}, DType::f64);
    Case loss = make(Kind::token_loss, {}, {sums, mask});
    for (std::size_t t = 0; t < 48; ++t) {
        const std::size_t row = t / 12, position = t % 12;  // rows 0 and 3 are those of two dp ranks
        loss.values[0][t] = 1.0;
        loss.values[0][48 + t] = row == 0 ? -2.0 : row == 3 ? -4.0 : -1000.0;
        loss.values[1][t] = (row == 0 && position == 5) || (row == 3 && position >= 3);
    }
    Case count = make(Kind::count, signature("bs->"), {mask}), inverse = make(Kind::reciprocal, {}, {scalar});
    count.values = {loss.values[1]};
    inverse.values = check_grid(count);
    const double sum = check_grid(loss)[0][0], share = everywhere(Grid(), inverse)[0][0];
    CHECK(sum == 38.0);
    CHECK(inverse.values[0][0] == 10.0);
    CHECK(sum * share == doctest::Approx(3.8).epsilon(1e-15));  // what mean_loss makes of the two
}

TEST_CASE("no counted tokens: the reciprocal is 0, not infinite") {
    Case k = make(Kind::reciprocal, {}, {TensorType({}, DType::f64)});
    k.values[0] = {0.0};
    CHECK(everywhere(Grid(), k)[0][0] == 0.0);
    k.values[0] = {8.0};
    CHECK(everywhere(Grid(), k)[0][0] == 0.125);
}

TEST_CASE("scale: a power of the step's loss scale") {
    Attributes a;
    a.loss_scale = 1;
    Case k = make(Kind::scale_loss, a, {TensorType({}, DType::f64)});
    k.values[0] = {0.3};
    CHECK(everywhere(Grid(), k)[0][0] == 0.3 * loss_scale);
    k.attributes.loss_scale = -2;
    CHECK(everywhere(Grid(), k)[0][0] == 0.3 / loss_scale / loss_scale);
    k.values[0] = {std::numeric_limits<double>::infinity()};
    CHECK(everywhere(Grid(), k)[0][0] == std::numeric_limits<double>::infinity());
}

TEST_CASE("load: who gets which sequences and positions") {
    for (const Input input : {Input::tokens, Input::positions}) {
        Bench b(grid);
        Attributes a;
        a.input = input;
        a.types = {b.tables->intern(TensorType({4, 8}, DType::i32, place({b_cut, s_cut})))};
        const TensorId out = b.program.add(Kind::load, {}, a, {Part::step, 0, 2, -1})[0];
        b.place();
        StepInputs step;
        step.load = [](const LoadRequest& r) {
            CHECK(r.microbatch == 2);
            auto* to = static_cast<std::int32_t*>(r.to);
            for (const std::int64_t s : r.sequences)
                for (const std::int64_t p : r.positions) *to++ = static_cast<std::int32_t>(s * 8 + p);
        };
        Copies copies;
        for (std::int64_t r = 0; r < grid.ranks(); ++r) {
            b.run(grid.coordinate(r), 0, step);
            b.add(grid.coordinate(r), out, copies);
        }
        const Values got = one_of(copies);
        for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == static_cast<double>(input == Input::tokens ? i : i % 8));
    }
}
