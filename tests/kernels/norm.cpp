// LayerNorm and RMSNorm against float64, their derivatives against central differences of the float64 function.
// Tolerances: the stored type's rounding plus 3e-6 for fp32 statistics; sums over rows 2e-6 sqrt(rows).
#include "kernels/device.hpp"
#include "kernels/reference.hpp"

using namespace quadrille;
using namespace quadrille::test;

namespace {

Values norm64(const Norm& n, const Values& x, const Values& gain, const Values& bias) {
    Values y(x.size());
    const auto h = static_cast<std::size_t>(n.h);
    for (std::size_t row = 0; row < x.size(); row += h) {
        double mean = 0.0, squares = 0.0;
        for (std::size_t c = 0; c < h; ++c) mean += x[row + c] / static_cast<double>(h);
        if (n.rms) mean = 0.0;
        for (std::size_t c = 0; c < h; ++c) squares += (x[row + c] - mean) * (x[row + c] - mean);
        const double rstd = 1.0 / std::sqrt(squares / static_cast<double>(h) + static_cast<double>(n.eps));
        for (std::size_t c = 0; c < h; ++c) y[row + c] = (x[row + c] - mean) * rstd * gain[c] + (bias.empty() ? 0.0 : bias[c]);
    }
    return y;
}

struct Problem {
    Problem(std::int64_t rows, std::int64_t h, bool rms, DType t) {
        n.rows = rows, n.h = h, n.rms = rms, n.t = t;
        x = operand(rows * h, t, 1), r = operand(rows * h, t, 2), dy = operand(rows * h, t, 3);
        gain = operand(h, t, 4), bias = operand(h, t, 5);
    }
    Norm n;
    Operand x, r, dy, gain, bias;
};

void norm_dw(const Problem& p, Stored& dgain, Stored* dbias, DType out_type, bool accumulate) {
    Workspace workspace(kernels()->norm_dw_workspace(p.n));
    kernels()->norm_dw(p.n, p.x.data(), p.dy.data(), dgain.data(), dbias ? dbias->data() : nullptr, out_type, accumulate, workspace.data());
}

template <class F>
void each_problem(F f) {
    for (const DType t : storage_types)
        for (const bool rms : {false, true})
            for (const std::int64_t rows : {1, 3, 70})
                for (const std::int64_t h : odd_sizes) {
                    if (h == 1 && !rms) continue;  // x - mean is rounding only
                    CAPTURE(rows);
                    CAPTURE(h);
                    CAPTURE(rms);
                    CAPTURE(name_of(t));
                    f(Problem(rows, h, rms, t));
                }
}

}  // namespace

TEST_CASE("norm and residual_norm") {
    each_problem([](const Problem& p) {
        const double relative = rounding(p.n.t) + 2e-6, absolute = 4e-6;
        Stored y = garbage(p.x.stored.size(), p.n.t), sum = y;
        kernels()->norm(p.n, p.x.data(), p.gain.data(), p.bias.data(), y.data());
        CHECK(error(y, norm64(p.n, p.x.x, p.gain.x, p.bias.x), relative, absolute) <= 1.0);
        kernels()->norm(p.n, p.x.data(), p.gain.data(), nullptr, y.data());
        CHECK(error(y, norm64(p.n, p.x.x, p.gain.x, {}), relative, absolute) <= 1.0);
        kernels()->residual_norm(p.n, p.x.data(), p.r.data(), p.gain.data(), p.bias.data(), sum.data(), y.data());
        Values both = p.x.x;
        for (std::size_t i = 0; i < both.size(); ++i) both[i] += p.r.x[i];
        CHECK(error(sum, both, rounding(p.n.t), 1e-7) <= 1.0);
        CHECK(error(y, norm64(p.n, values(sum), p.gain.x, p.bias.x), relative, 2 * absolute) <= 1.0);
    });
}

TEST_CASE("a mean a thousand times the deviation does not spoil the variance") {
    Norm n{.rows = 2, .h = 257};
    Values shifted = normal(514, 6);
    for (double& v : shifted) v += 1000.0;
    const Stored x = stored(shifted, DType::f32), gain = stored(Values(257, 1.0), DType::f32);
    Stored y = garbage(514, DType::f32);
    kernels()->norm(n, x.data(), gain.data(), nullptr, y.data());
    CHECK(error(y, norm64(n, values(x), Values(257, 1.0), {}), 0.0, 3e-4) <= 1.0);
}

TEST_CASE("norm_dx and norm_dw against central differences") {
    each_problem([](const Problem& p) {
        if (p.n.rows * p.n.h > 5000) return;  // the differences are quadratic; rows are alike
        const auto loss_x = [&](const Values& x) { return dot(p.dy.x, norm64(p.n, x, p.gain.x, p.bias.x)); };
        Stored dx = garbage(p.x.stored.size(), p.n.t);
        kernels()->norm_dx(p.n, p.x.data(), p.gain.data(), p.dy.data(), dx.data());
        const Values want = central_difference(loss_x, p.x.x, 1e-6);
        double largest = 1.0;  // few columns and a tiny variance give large rstd, and with it large errors
        for (const double d : want) largest = std::max(largest, std::abs(d));
        CHECK(error(dx, want, rounding(p.n.t) + 1e-5, 1e-5 * largest) <= 1.0);
        Stored in_place = p.dy.stored;
        kernels()->norm_dx(p.n, p.x.data(), p.gain.data(), in_place.data(), in_place.data());
        CHECK(in_place.bytes == dx.bytes);

        const Values dgain64 = central_difference([&](const Values& g) { return dot(p.dy.x, norm64(p.n, p.x.x, g, p.bias.x)); }, p.gain.x);
        const Values dbias64 = central_difference([&](const Values& b) { return dot(p.dy.x, norm64(p.n, p.x.x, p.gain.x, b)); }, p.bias.x);
        for (const DType out : storage_types)
            for (const bool accumulate : {false, true}) {
                const Operand before = operand(p.n.h, out, 7);
                Values gain_want = dgain64, bias_want = dbias64;
                for (std::size_t c = 0; accumulate && c < gain_want.size(); ++c) gain_want[c] += before.x[c], bias_want[c] += before.x[c];
                Stored dgain = before.stored, dbias = before.stored;
                norm_dw(p, dgain, &dbias, out, accumulate);
                CHECK(error(dgain, gain_want, rounding(out), 2e-5) <= 1.0);
                CHECK(error(dbias, bias_want, rounding(out), 2e-5) <= 1.0);
                norm_dw(p, dgain, nullptr, out, false);
                CHECK(error(dgain, dgain64, rounding(out), 2e-5) <= 1.0);
            }
    });
}

TEST_CASE("the same bits on any number of threads") {
    for (const DType t : storage_types) {
        const Problem p(200, 260, false, t);
        CHECK(same_bits_on_any_threads([&] {
            Stored dgain = garbage(260, DType::f32), dbias = dgain;
            norm_dw(p, dgain, &dbias, DType::f32, false);
            dgain.bytes.insert(dgain.bytes.end(), dbias.bytes.begin(), dbias.bytes.end());
            return dgain.bytes;
        }));
        CHECK(same_bits_on_any_threads([&] {
            Stored dx = garbage(200 * 260, t);
            kernels()->norm_dx(p.n, p.x.data(), p.gain.data(), p.dy.data(), dx.data());
            return dx.bytes;
        }));
    }
}
