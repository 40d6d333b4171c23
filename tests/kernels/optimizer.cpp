// Updates and norms against float64 over several steps.
#include "kernels/device.hpp"
#include "kernels/reference.hpp"

using namespace quadrille;
using namespace quadrille::test;

namespace {

// A slice of parameters: fp32 masters with moments, in the kernel's types and in float64.
struct Parameters {
    explicit Parameters(std::int64_t n) : p(operand(n, DType::f32, 1)), x(p.x), m64(x.size()), v64(x.size()), m(x.size()), v(x.size()) {}
    float* master() { return static_cast<float*>(p.stored.data()); }
    ParameterSlice slice(const Operand& g, Stored* weight) {
        ParameterSlice s{.count = std::ssize(x), .master = master(), .m = m.data(), .v = v.data(), .gradient = g.data(), .gradient_type = g.stored.t};
        if (weight) s.weight = weight->data(), s.weight_type = weight->t;
        s.decays = true;
        return s;
    }
    Operand p;
    Values x, m64, v64;
    std::vector<float> m, v;
};

void adamw64(Parameters& q, const Values& gradient, const AdamW& a, double factor) {
    for (std::size_t i = 0; i < q.x.size(); ++i) {
        const double g = factor * gradient[i];
        q.m64[i] = a.beta1 * q.m64[i] + (1.0 - a.beta1) * g;
        q.v64[i] = a.beta2 * q.v64[i] + (1.0 - a.beta2) * g * g;
        const double step = q.m64[i] / a.correction1 / (std::sqrt(q.v64[i] / a.correction2) + a.eps);
        q.x[i] -= a.lr * (step + a.weight_decay * q.x[i]);
    }
}

// The gradient's norm on the device, and what follows from it.
struct Norm2 {
    explicit Norm2(double norm2) : on_device{norm2} {}
    Clip clip(double at, double grad_scale) const { return {on_device.data(), at, grad_scale}; }
    std::vector<double> on_device;
};

}  // namespace

TEST_CASE("adamw over ten steps, weights in the masters and apart") {
    for (const DType g_type : storage_types)
        for (const std::int64_t n : {std::int64_t{1}, std::int64_t{3}, std::int64_t{60}, std::int64_t{257}, std::int64_t{40001}}) {
            Parameters q(n);
            const DType weight_type = g_type == DType::f32 ? DType::bf16 : g_type;
            Stored weight = garbage(n, weight_type);
            const Norm2 norm(4.0);
            for (int step = 1; step <= 10; ++step) {
                const Operand g = operand(n, g_type, 100 + static_cast<unsigned>(step));
                AdamW a{.lr = 3e-3, .weight_decay = 0.1};
                a.correction1 = 1.0 - std::pow(a.beta1, step), a.correction2 = 1.0 - std::pow(a.beta2, step);
                const bool apart = step % 2 == 0;
                const ParameterSlice s = q.slice(g, apart ? &weight : nullptr);
                kernels()->adamw({&s, 1}, a, norm.clip(0.6, 1.0));
                adamw64(q, g.x, a, 0.6 / 2);
                if (apart) CHECK(weight.bytes == stored(values(q.p.stored), weight_type).bytes);
            }
            CHECK(error(q.p.stored, q.x, 1e-6, 1e-6) <= 1.0);
            CHECK(error(Values(q.m.begin(), q.m.end()), q.m64, 1e-5, 1e-6) <= 1.0);
            CHECK(error(Values(q.v.begin(), q.v.end()), q.v64, 1e-5, 1e-6) <= 1.0);
        }
}

TEST_CASE("sgd") {
    for (const DType g_type : storage_types) {
        Parameters q(257);
        const Operand g = operand(257, g_type, 2);
        Stored weight = garbage(257, g_type == DType::f32 ? DType::f16 : g_type);
        const ParameterSlice s = q.slice(g, &weight);
        const Norm2 norm(9.0);
        kernels()->sgd({&s, 1}, {.lr = 0.1, .weight_decay = 0.01}, norm.clip(0.0, 0.5));
        for (std::size_t i = 0; i < q.x.size(); ++i) q.x[i] -= 0.1 * (0.5 * g.x[i] + 0.01 * q.x[i]);
        CHECK(error(q.p.stored, q.x, 2e-7, 1e-7) <= 1.0);
        CHECK(weight.bytes == stored(values(q.p.stored), weight.t).bytes);
    }
}

TEST_CASE("many slices at once, of which some do not decay, are each what they would be alone") {
    const Norm2 norm(1.0);
    const AdamW a{.lr = 3e-3, .weight_decay = 0.1, .correction1 = 0.1, .correction2 = 0.05};
    std::vector<Parameters> together, alone;
    std::vector<Operand> gradients;
    for (std::int64_t i = 0; i < 150; ++i) {
        const std::int64_t n = i % 7 == 0 ? 0 : 1 + i * i % 1031;
        together.emplace_back(n), alone.emplace_back(n);
        gradients.push_back(operand(n, DType::bf16, static_cast<unsigned>(i)));
    }
    std::vector<ParameterSlice> slices;
    for (std::size_t i = 0; i < together.size(); ++i) {
        slices.push_back(together[i].slice(gradients[i], nullptr));
        slices.back().decays = i % 3 != 0;
        ParameterSlice one = alone[i].slice(gradients[i], nullptr);
        one.decays = slices.back().decays;
        kernels()->adamw({&one, 1}, a, norm.clip(1.0, 1.0));
    }
    kernels()->adamw(slices, a, norm.clip(1.0, 1.0));
    for (std::size_t i = 0; i < together.size(); ++i) {
        CHECK(together[i].p.stored.bytes == alone[i].p.stored.bytes);
        CHECK(together[i].m == alone[i].m);
        CHECK(together[i].v == alone[i].v);
    }
    const Parameters decayed = alone[4], plain = alone[3];
    for (Parameters& q : alone) q = Parameters(std::ssize(q.x));
    Parameters &with = alone[4], &without = alone[3];
    adamw64(with, gradients[4].x, a, 1.0);
    AdamW no_decay = a;
    no_decay.weight_decay = 0.0;
    adamw64(without, gradients[3].x, no_decay, 1.0);
    CHECK(error(decayed.p.stored, with.x, 1e-6, 1e-6) <= 1.0);
    CHECK(error(plain.p.stored, without.x, 1e-6, 1e-6) <= 1.0);
}

TEST_CASE("no update where the norm is not finite; the clip is at the norm") {
    for (const double norm2 : {std::nan(""), static_cast<double>(INFINITY)}) {
        Parameters q(60);
        const Operand g = operand(60, DType::f32, 3);
        const Stored before = q.p.stored;
        Stored weight = garbage(60, DType::bf16);
        const Stored weight_before = weight;
        const ParameterSlice s = q.slice(g, &weight);
        const Norm2 norm(norm2);
        kernels()->adamw({&s, 1}, {.lr = 1.0}, norm.clip(1.0, 1.0));
        kernels()->sgd({&s, 1}, {.lr = 1.0}, norm.clip(1.0, 1.0));
        CHECK(q.p.stored.bytes == before.bytes);
        CHECK(weight.bytes == weight_before.bytes);
        CHECK(q.m == std::vector<float>(60, 0.0f));
    }
    CHECK(clip_factor(4.0, 0.0) == 1.0);
    CHECK(clip_factor(4.0, 2.0) == 1.0);
    CHECK(clip_factor(4.0, 1.0) == doctest::Approx(0.5).epsilon(1e-6));
}

TEST_CASE("a zero gradient, moment and decay leave the parameter alone") {
    Parameters q(60);
    const Stored before = q.p.stored;
    const Operand g{stored(Values(60, 0.0), DType::f32), {}};
    const ParameterSlice s = q.slice(g, nullptr);
    const Norm2 norm(0.0);
    kernels()->adamw({&s, 1}, {.lr = 1.0}, norm.clip(1.0, 1.0));
    CHECK(q.p.stored.bytes == before.bytes);
}

namespace {

double squares(const void* g, DType t, const std::vector<Extent>& stretches) {
    Workspace workspace(kernels()->sum_squares_workspace(total(stretches), std::ssize(stretches)));
    std::vector<double> sum(1);
    kernels()->sum_squares(g, t, stretches, sum.data(), workspace.data());
    return sum[0];
}
double squares(const void* g, DType t, std::int64_t count) { return squares(g, t, {{0, count}}); }

}  // namespace

TEST_CASE("sum_squares is exact to float64, and blocks add in order on any cut of whole blocks") {
    for (const DType t : storage_types)
        for (const std::int64_t n : {0, 1, 3, 1023, 1024, 1025, 50000}) {
            const Operand g = operand(n, t, 3);
            CHECK(squares(g.data(), t, n) == doctest::Approx(dot(g.x, g.x)).epsilon(1e-13));
        }
    const Operand g = operand(3 * 1024 + 5, DType::f32, 4);
    double in_order = 0.0;
    for (std::int64_t b = 0; b < 4; ++b)
        in_order += squares(static_cast<const float*>(g.data()) + 1024 * b, DType::f32, std::min<std::int64_t>(1024, 3 * 1024 + 5 - 1024 * b));
    CHECK(squares(g.data(), DType::f32, 3 * 1024 + 5) == in_order);
    CHECK(squares(g.data(), DType::f32, std::vector<Extent>{}) == 0.0);
    double picked = 0.0;
    for (std::size_t i = 0; i < g.x.size(); ++i)
        if ((i >= 5 && i < 1029) || (i >= 1030 && i < 3000)) picked += g.x[i] * g.x[i];
    CHECK(squares(g.data(), DType::f32, {{5, 24}, {29, 1000}, {1030, 1970}}) == doctest::Approx(picked).epsilon(1e-13));
    const Operand large = operand(100000, DType::bf16, 5);
    CHECK(same_bits_on_any_threads([&] {
        const double s = squares(large.data(), DType::bf16, 100000);
        std::vector<unsigned char> bytes(sizeof s);
        std::memcpy(bytes.data(), &s, sizeof s);
        return bytes;
    }));
}
