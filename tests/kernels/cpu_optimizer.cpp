// Updates and norms against float64 over several steps; initial values against random.hpp.
#include "base/random.hpp"
#include "cpu/optimizer.hpp"
#include "kernels/reference.hpp"

using namespace quadrille;
using namespace quadrille::test;

namespace {

// A slice of parameters: fp32 masters with moments, in the kernel's types and in float64.
struct Parameters {
    explicit Parameters(std::int64_t n) : p(operand(n, DType::f32, 1)), x(p.x), m64(x.size()), v64(x.size()), m(x.size()), v(x.size()) {}
    float* master() { return static_cast<float*>(p.stored.data()); }
    Operand p;
    Values x, m64, v64;
    std::vector<float> m, v;
};

void adamw64(Parameters& q, const Values& gradient, const AdamW& a) {
    for (std::size_t i = 0; i < q.x.size(); ++i) {
        const double g = a.grad_scale * gradient[i];
        q.m64[i] = a.beta1 * q.m64[i] + (1.0 - a.beta1) * g;
        q.v64[i] = a.beta2 * q.v64[i] + (1.0 - a.beta2) * g * g;
        const double step = q.m64[i] / a.correction1 / (std::sqrt(q.v64[i] / a.correction2) + a.eps);
        q.x[i] -= a.lr * (step + a.weight_decay * q.x[i]);
    }
}

}  // namespace

TEST_CASE("adamw over ten steps, weights in the masters and apart") {
    for (const DType g_type : storage_types)
        for (const std::int64_t n : {std::int64_t{1}, std::int64_t{3}, std::int64_t{60}, std::int64_t{257}, std::int64_t{40001}}) {
            Parameters q(n);
            const DType weight_type = g_type == DType::f32 ? DType::bf16 : g_type;
            Stored weight = garbage(n, weight_type);
            for (int step = 1; step <= 10; ++step) {
                const Operand g = operand(n, g_type, 100 + static_cast<unsigned>(step));
                AdamW a{.lr = 3e-3, .weight_decay = 0.1};
                a.correction1 = 1.0 - std::pow(a.beta1, step), a.correction2 = 1.0 - std::pow(a.beta2, step), a.grad_scale = 0.3;
                const bool apart = step % 2 == 0;
                const ParameterSlice s{.count = n, .master = q.master(), .gradient = g.data(), .gradient_type = g_type,
                              .weight = apart ? weight.data() : nullptr, .weight_type = weight_type};
                adamw(s, q.m.data(), q.v.data(), a);
                adamw64(q, g.x, a);
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
        const DType weight_type = g_type == DType::f32 ? DType::f16 : g_type;
        Stored weight = garbage(257, weight_type);
        sgd({.count = 257, .master = q.master(), .gradient = g.data(), .gradient_type = g_type, .weight = weight.data(), .weight_type = weight_type},
            {.lr = 0.1, .weight_decay = 0.01, .grad_scale = 0.5});
        for (std::size_t i = 0; i < q.x.size(); ++i) q.x[i] -= 0.1 * (0.5 * g.x[i] + 0.01 * q.x[i]);
        CHECK(error(q.p.stored, q.x, 2e-7, 1e-7) <= 1.0);
        CHECK(weight.bytes == stored(values(q.p.stored), weight_type).bytes);
    }
}

TEST_CASE("a zero gradient, moment and decay leave the parameter alone") {
    Parameters q(60);
    const Stored before = q.p.stored, g = stored(Values(60, 0.0), DType::f32);
    adamw({.count = 60, .master = q.master(), .gradient = g.data(), .gradient_type = DType::f32, .weight = nullptr}, q.m.data(), q.v.data(),
          {.lr = 1.0});
    CHECK(q.p.stored.bytes == before.bytes);
}

namespace {
double squares(const void* g, DType t, std::int64_t count) { return sum_squares(g, t, count, Workspace(sum_squares_workspace(count)).data()); }
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
    const Operand large = operand(100000, DType::bf16, 5);
    CHECK(same_bits_on_any_threads([&] {
        const double s = squares(large.data(), DType::bf16, 100000);
        std::vector<unsigned char> bytes(sizeof s);
        std::memcpy(bytes.data(), &s, sizeof s);
        return bytes;
    }));
}

TEST_CASE("fill_uniform fills its interval evenly, by global element") {
    std::vector<float> whole(10000), cut(5, 9.0f);
    const Run all{.offset = 0, .element = 0, .count = 10000}, run{.offset = 2, .element = 700, .count = 2};
    fill_uniform(whole.data(), {&all, 1}, 42, 0.25);
    fill_uniform(cut.data(), {&run, 1}, 42, 0.25);
    CHECK(cut == std::vector<float>{9.0f, 9.0f, whole[700], whole[701], 9.0f});
    std::array<int, 10> counts{};
    for (const float x : whole) {
        CHECK(std::abs(x) <= 0.25f);
        ++counts[std::min<std::size_t>(9, static_cast<std::size_t>((x + 0.25f) * 20.0f))];
    }
    for (const int n : counts) CHECK(std::abs(n - 1000) < 150);
}

TEST_CASE("fill_normal draws by global element and touches the runs only") {
    std::vector<float> whole(1000), cut(20, 9.0f);
    const Run all{.offset = 0, .element = 0, .count = 1000};
    fill_normal(whole.data(), {&all, 1}, 42, 0.02);
    const Run runs[] = {{.offset = 1, .element = 500, .count = 4}, {.offset = 8, .element = 3, .count = 7}};
    fill_normal(cut.data(), runs, 42, 0.02);
    for (std::size_t i = 0; i < 20; ++i) {
        const float want = i >= 1 && i < 5 ? whole[500 + i - 1] : i >= 8 && i < 15 ? whole[3 + i - 8] : 9.0f;
        CHECK(cut[i] == want);
    }
    CHECK(whole[17] == static_cast<float>(0.02 * random_normal(42, 17)));
    double sum = 0.0, squares = 0.0;
    for (const float x : whole) sum += x, squares += static_cast<double>(x) * x;
    CHECK(std::abs(sum / 1000.0) < 0.002);
    CHECK(std::sqrt(squares / 1000.0) == doctest::Approx(0.02).epsilon(0.1));
}
