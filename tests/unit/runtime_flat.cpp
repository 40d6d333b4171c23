// What looks into flat buffers, on every slice that a ZeRO cut can give: the slices together are the whole.
#include "runtime/bindings.hpp"
#include "runtime_bench.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace quadrille;
using namespace quadrille::test;

namespace {

const Grid grid = Grid::of_user_axes(2, 2, 1, 2, 2, 1, {"tp", "sp", "dp", "pp"});

// A unit of three parameters: a matrix cut by tp, a norm's gain, a matrix that no axis cuts; then padding.
struct Unit : Bench {
    TensorType flat;
    TensorId w = -1, g = -1, norm2 = -1, m = -1, v = -1, master = -1;

    explicit Unit(DType weights = DType::f32, bool cut = true) : Bench(grid) {
        Placement rows;
        rows.cuts[0] = Cuts::along(grid, tensor_axes);
        add("a", {2000, 2}, rows, true);
        add("b", {700}, {}, false);
        add("c", {30, 50}, {}, true);
        Flat f;
        for (int i = 0; i < 3; ++i) {
            const std::int64_t n = tables->count(program.parameters[static_cast<std::size_t>(i)].type);
            f.segments.push_back({i, f.end, n});
            f.end += n;
        }
        f.length = 8 * flat_block;
        program.flats.push_back(f);
        flat = TensorType({f.length}, DType::f32);
        flat.place.varies = tensor_axes & grid.real(tensor_axes);
        if (cut) flat.place.cuts[0] = Cuts::along(grid, zero_axes);
        w = input(flat.of(weights));
        TensorType gradient = flat.in(Book::gradients);
        gradient.covers = tables->covers({{0, 0}});
        g = input(gradient);
        norm2 = input(TensorType({}, DType::f64));
        m = input(flat);
        v = input(flat);
        if (weights != DType::f32) master = input(flat);
    }
    void add(const char* name, std::initializer_list<std::int64_t> shape, const Placement& p, bool decays) {
        Parameter q;
        q.name = name;
        q.type = tables->intern(TensorType(shape, DType::f32, p));
        q.shape = shape;
        q.decays = decays;
        program.parameters.push_back(q);
    }
    double* norm(const Coordinate& c) { return reinterpret_cast<double*>(at(c, norm2)); }
    float* values(const Coordinate& c, TensorId t) { return reinterpret_cast<float*>(at(c, t)); }
    std::int64_t count() const { return program.tables->count(program.tensors[static_cast<std::size_t>(g)].type); }
};

// Element i of the flat gradient, which differs from one tp coordinate to the next.
float gradient(std::int64_t i, int tp) {
    return static_cast<float>(random_normal(3 + static_cast<std::uint64_t>(tp), static_cast<std::uint64_t>(i)));
}

}  // namespace

TEST_CASE("squares: of the parameters cut by exactly these axes, block by block") {
    for (const bool cut : {false, true}) {
        Unit u(DType::f32, cut);
        Attributes a;
        a.unit = 0;
        a.which = Axis::tp;
        const TensorId by_tp = u.program.add(Kind::sum_squares, {u.g}, a, {})[0];
        a.which = {};
        const TensorId whole = u.program.add(Kind::sum_squares, {u.g}, a, {})[0];
        u.place();
        double sums[2][2] = {};
        for (std::int64_t r = 0; r < grid.ranks(); ++r) {
            const Coordinate c = grid.coordinate(r);
            if (!cut && c[Axis::shard] + c[Axis::sp] > 0) continue;
            const std::int64_t first = first_index(grid, u.program.type(u.g), 0, c);
            for (std::int64_t i = 0; i < u.count(); ++i) u.values(c, u.g)[i] = gradient(first + i, c[Axis::tp]);
            u.run(c, 0, {});
            u.run(c, 1, {});
            sums[0][c[Axis::tp]] += read(u.at(c, by_tp), DType::f64);
            sums[1][c[Axis::tp]] += read(u.at(c, whole), DType::f64);
        }
        for (const int tp : {0, 1}) {
            double wanted[2] = {};
            for (std::int64_t i = 0; i < 2000 + 700 + 1500; ++i) wanted[i < 2000 ? 0 : 1] += static_cast<double>(gradient(i, tp)) * gradient(i, tp);
            CHECK(sums[0][tp] == doctest::Approx(wanted[0]).epsilon(1e-8));
            CHECK(sums[1][tp] == doctest::Approx(wanted[1]).epsilon(1e-8));
        }
    }
}

TEST_CASE("AdamW: every slice, decay by parameter, clipping, padding left alone") {
    for (const DType weights : {DType::f32, DType::bf16, DType::f16}) {
        Unit u(weights);
        Attributes a;
        a.unit = 0;
        a.microbatches = 1;
        a.clip = 0.5;
        a.loss_scale = weights == DType::f16 ? -1 : 0;
        Program::Options o;
        std::vector<TensorId> in = {u.w, u.g, u.norm2};
        if (u.master >= 0) in.push_back(u.master);
        in.insert(in.end(), {u.m, u.v});
        o.storage = {u.w};
        o.storage.insert(o.storage.end(), in.begin() + 3, in.end());
        u.program.add(Kind::adamw, in, a, {}, o);
        u.place();
        StepInputs s;
        s.step = 7;    // data's step: no business of the update
        s.update = 1;  // the second update
        s.lr = 0.01;
        s.weight_decay = 0.3;
        s.loss_scale = 1024;  // told to every program, used by those that scale
        const float scale = weights == DType::f16 ? 1024.0f : 1.0f;
        const double clip = 0.5 / (2.0 + 1e-6);
        for (std::int64_t r = 0; r < grid.ranks(); ++r) {
            const Coordinate c = grid.coordinate(r);
            const std::int64_t first = first_index(grid, u.flat, 0, c);
            float* w = u.values(c, u.master >= 0 ? u.master : u.w);
            float *g = u.values(c, u.g), *m = u.values(c, u.m), *v = u.values(c, u.v);
            for (std::int64_t i = 0; i < u.count(); ++i) {
                w[i] = 1.5f;
                g[i] = gradient(first + i, 0) * scale;
                m[i] = 0.25f;
                v[i] = 0.5f;
            }
            *u.norm(c) = 4.0;
            u.run(c, 0, s);
            for (std::int64_t i = 0; i < u.count(); ++i) {
                const std::int64_t at = first + i;
                if (at >= 4200) { CHECK(w[i] == 1.5f); continue; }
                const double gradient = g[i] / scale * clip, m1 = 0.9 * 0.25 + 0.1 * gradient, v1 = 0.95 * 0.5 + 0.05 * gradient * gradient;
                const double step = m1 / (1 - 0.81) / (std::sqrt(v1 / (1 - 0.95 * 0.95)) + 1e-8), decay = at >= 2000 && at < 2700 ? 0.0 : 0.3;
                const double wanted = 1.5 - 0.01 * (step + decay * 1.5);
                CHECK(w[i] == doctest::Approx(wanted).epsilon(1e-6));
                CHECK(m[i] == doctest::Approx(m1).epsilon(1e-5));
                CHECK(v[i] == doctest::Approx(v1).epsilon(1e-5));
                if (weights == DType::bf16) CHECK(read(u.at(c, u.w) + i * 2, weights) == static_cast<double>(static_cast<float>(bf16(w[i]))));
                if (weights == DType::f16) CHECK(read(u.at(c, u.w) + i * 2, weights) == static_cast<double>(static_cast<float>(f16(w[i]))));
            }
            for (const double bad : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
                const std::vector<float> before(w, w + u.count());
                *u.norm(c) = bad;
                u.run(c, 0, s);
                CHECK(std::equal(before.begin(), before.end(), w));
            }
        }
    }
}

// Whichever step is the first of a process: a resumed run has none before it either.
TEST_CASE("a stale update waits for a step to have gone before") {
    for (const Kind kind : {Kind::sgd, Kind::adamw}) {
        Unit u;
        Attributes a;
        a.unit = 0;
        a.microbatches = 1;
        a.stale = true;
        std::vector<TensorId> in = {u.w, u.g, u.norm2};
        if (kind == Kind::adamw) in.insert(in.end(), {u.m, u.v});
        Program::Options o;
        o.storage = {u.w};
        o.storage.insert(o.storage.end(), in.begin() + 3, in.end());
        u.program.add(kind, in, a, {}, o);
        u.place();
        const Coordinate c;
        for (const bool follows : {false, true}) {
            StepInputs s;
            s.step = follows ? 0 : 7;
            s.follows_a_step = follows;
            s.lr = 0.5;
            s.weight_decay = 0.1;
            for (const TensorId t : in)
                if (t != u.norm2) std::fill_n(u.values(c, t), u.count(), t == u.g ? 1.0f : 0.25f);
            *u.norm(c) = 1;
            u.run(c, 0, s);
            CHECK((u.values(c, u.w)[0] == 0.25f) == !follows);
            if (kind == Kind::adamw) CHECK((u.values(c, u.m)[0] == 0.25f && u.values(c, u.v)[0] == 0.25f) == !follows);
        }
    }
}

TEST_CASE("SGD has no state") {
    Unit u;
    Attributes a;
    a.unit = 0;
    a.microbatches = 1;
    Program::Options o;
    o.storage = {u.w};
    u.program.add(Kind::sgd, {u.w, u.g, u.norm2}, a, {}, o);
    u.place();
    StepInputs s;
    s.lr = 0.5;
    s.weight_decay = 0.1;
    const Coordinate c;
    std::fill_n(u.values(c, u.w), u.count(), 1.0f);
    std::fill_n(u.values(c, u.g), u.count(), 0.25f);
    *u.norm(c) = 1e6;  // clip 0: never
    u.run(c, 0, s);
    CHECK(u.values(c, u.w)[0] == doctest::Approx(1 - 0.5 * (0.25 + 0.1)));
}

TEST_CASE("a power of the loss scale changes no bit: the update of scaled gradients is that of plain ones") {
    const auto updated = [](double scale) {
        Unit u;
        Attributes a;
        a.unit = 0;
        a.microbatches = 1;
        a.clip = 0.7;
        a.loss_scale = -1;
        Program::Options o;
        o.storage = {u.w, u.m, u.v};
        u.program.add(Kind::adamw, {u.w, u.g, u.norm2, u.m, u.v}, a, {}, o);
        u.place();
        StepInputs s;
        s.lr = 0.01;
        s.loss_scale = scale;
        const Coordinate c;
        for (std::int64_t i = 0; i < u.count(); ++i) {
            u.values(c, u.w)[i] = 1;
            u.values(c, u.g)[i] = gradient(i, 0) * static_cast<float>(scale);
            u.values(c, u.m)[i] = u.values(c, u.v)[i] = 0.5f;
        }
        *u.norm(c) = 9;
        u.run(c, 0, s);
        std::vector<float> all;
        for (const TensorId t : {u.w, u.m, u.v}) all.insert(all.end(), u.values(c, t), u.values(c, t) + u.count());
        return all;
    };
    const std::vector<float> plain = updated(1);
    CHECK(updated(65536) == plain);
    CHECK(updated(0x1p40) == plain);
    StepInputs s;
    s.loss_scale = 0x1p30;
    CHECK(scaled(3, s, 1) == 3 * 0x1p30);
    CHECK(scaled(3 * 0x1p60, s, -2) == 3);
    CHECK(scaled(0.1, s, 0) == 0.1);
}

TEST_CASE("clipping: only above the limit, never with 0") {
    CHECK(clip_factor(4.0, 0.0) == 1.0);
    CHECK(clip_factor(4.0, 2.0) == 1.0);
    CHECK(clip_factor(4.0, 1.0) == doctest::Approx(0.5).epsilon(1e-6));
    CHECK(clip_factor(0.0, 1.0) == 1.0);
}

TEST_CASE("join zeroes the padding and nothing else") {
    Unit u(DType::f32, false);
    Attributes a;
    a.unit = 0;
    a.microbatches = 1;
    TensorType whole = u.flat.in(Book::gradients);
    a.types = {u.tables->intern(whole)};
    const BufferId buffer = u.program.tensors[static_cast<std::size_t>(u.g)].buffer;
    std::vector<TensorId> views;
    for (const FlatSegment& s : u.program.flats[0].segments) {
        TensorType t = u.tables->type(u.program.parameters[static_cast<std::size_t>(s.parameter)].type);
        t.covers = u.tables->covers({{0, 0}});
        views.push_back(u.program.declare("view", t, -1, buffer, s.offset));
    }
    Program::Options o;
    o.storage = {u.g};
    u.program.add(Kind::join, views, a, {}, o);
    u.place();
    std::fill_n(u.values({}, u.g), u.count(), 3.0f);
    u.run({}, 0, {});
    for (std::int64_t i = 0; i < u.count(); ++i) CHECK(u.values({}, u.g)[i] == (i < 4200 ? 3.0f : 0.0f));
}
