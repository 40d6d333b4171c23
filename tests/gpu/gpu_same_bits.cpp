// What has the same bits on a GPU as on the CPU: updates of parameters, packets and their sums, residuals.
#include "cpu/kernels.hpp"
#include "kernels/device.hpp"
#include "kernels/reference.hpp"

#include <array>
#include <limits>

using namespace quadrille;
using namespace quadrille::test;

namespace {

CpuKernels cpu() { return CpuKernels(1); }

// Parameters of one flat buffer with all that belongs to them.
struct State {
    Stored master, m, v, weight;
    explicit State(std::int64_t n, DType weight_type)
        : master(operand(n, DType::f32, 1).stored), m(operand(n, DType::f32, 2, 1e-3).stored), v(operand(n, DType::f32, 3, 1e-6).stored),
          weight(garbage(n, weight_type)) {
        for (std::int64_t i = 0; i < n; ++i) reinterpret_cast<float*>(v.data())[i] = std::fabs(reinterpret_cast<float*>(v.data())[i]);
    }
    friend bool operator==(const State& a, const State& b) {
        return a.master.bytes == b.master.bytes && a.m.bytes == b.m.bytes && a.v.bytes == b.v.bytes && a.weight.bytes == b.weight.bytes;
    }
    // Slices of uneven lengths that begin anywhere, with gaps between them.
    std::vector<ParameterSlice> slices(const Stored& gradient, bool apart) {
        std::vector<ParameterSlice> out;
        for (std::int64_t at = 0, count = 1; at + count <= gradient.size(); at += count + 1, count = count * 5 % 397 + 1) {
            ParameterSlice s{.count = count};
            const auto float_at = [&](Stored& x) { return reinterpret_cast<float*>(x.data()) + at; };
            s.master = float_at(master), s.m = float_at(m), s.v = float_at(v);
            s.gradient = gradient.bytes.data() + at * bytes_of(gradient.t), s.gradient_type = gradient.t;
            s.weight = apart ? weight.bytes.data() + at * bytes_of(weight.t) : nullptr, s.weight_type = weight.t;
            s.decays = out.size() % 2 == 0;
            out.push_back(s);
        }
        return out;
    }
};

}  // namespace

TEST_CASE("updates of many slices") {
    const std::int64_t n = 30000;
    for (const DType t : storage_types)
        for (const bool apart : {false, true})
            for (const double norm2 : {0.25, 9.0, std::numeric_limits<double>::infinity(), std::nan("")}) {
                const Stored gradient = operand(n, t, 4).stored;
                State a(n, t == DType::f32 ? DType::bf16 : t), b = a;
                const State before = a;
                REQUIRE(a.slices(gradient, apart).size() > 100);
                const Clip clip{.norm2 = &norm2, .clip = 1.0, .grad_scale = 0x1p-3};
                AdamW adam{.lr = 3e-3, .weight_decay = 0.1};
                adam.correction1 = 0.3, adam.correction2 = 0.2;
                cpu().adamw(a.slices(gradient, apart), adam, clip);
                kernels()->adamw(b.slices(gradient, apart), adam, clip);
                CHECK(a == b);
                CHECK((a == before) == !std::isfinite(norm2));
                cpu().sgd(a.slices(gradient, apart), {.lr = 0.1, .weight_decay = 0.01}, clip);
                kernels()->sgd(b.slices(gradient, apart), {.lr = 0.1, .weight_decay = 0.01}, clip);
                CHECK(a == b);
            }
}

TEST_CASE("packets, what is unsent, and sums") {
    const std::int64_t slices = 2, count = topk_block + 2 * packing_block;
    for (const Packing& p : {Packing{PackingMethod::bf16, 0, 0}, {PackingMethod::fp16, 0, 0}, {PackingMethod::topk, 0.013, 0},
                             {PackingMethod::topk, 1, 0}, {PackingMethod::qsgd, 0, 2}, {PackingMethod::qsgd, 0, 5}, {PackingMethod::qsgd, 0, 8}})
        for (const DType t : storage_types)
            for (const bool feedback : {false, true}) {
                CAPTURE(name_of(p.method));
                CAPTURE(name_of(t));
                CAPTURE(feedback);
                Values x = normal(slices * count + 1, 5, 1e-3);
                for (std::int64_t i = 0; i < packing_block; ++i) x[static_cast<std::size_t>(packing_block + i)] *= 1e-42;  // a block of the smallest
                x[3 * packing_block + 5] = std::numeric_limits<double>::infinity();
                x[4 * packing_block + 5] = std::nan("");
                const Stored g = stored(x, t), r = operand(slices * count, DType::f32, 6, 1e-3).stored;
                const std::size_t bytes = static_cast<std::size_t>(slices * packet_bytes(p, count));
                const auto run = [&](Kernels& k, std::int64_t off) {
                    std::vector<unsigned char> out(bytes);
                    Stored unsent = garbage(slices * count, DType::f32), sum = garbage(count, t);
                    Compress c{.packing = p, .slices = slices, .count = count};
                    c.gradient = g.bytes.data() + off * bytes_of(t), c.type = t, c.scale = 4, c.key = 7;
                    if (feedback) c.residual = reinterpret_cast<const float*>(r.data()), c.unsent = reinterpret_cast<float*>(unsent.data());
                    k.compress(c, reinterpret_cast<std::byte*>(out.data()));
                    finish_on_device();
                    k.decompress(p, reinterpret_cast<const std::byte*>(out.data()), slices, sum.data(), t, count);
                    finish_on_device();
                    out.insert(out.end(), unsent.bytes.begin(), unsent.bytes.end());
                    out.insert(out.end(), sum.bytes.begin(), sum.bytes.end());
                    return out;
                };
                CpuKernels on_cpu(1);
                const auto on_gpu = kernels_of_device();
                for (const std::int64_t off : {0, 1}) CHECK(run(on_cpu, off) == run(*on_gpu, off));
            }
}

TEST_CASE("a residual is retained where the norm is a number") {
    for (const double norm2 : {2.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
        const std::int64_t n = 3 * packing_block;
        const Stored unsent = operand(n, DType::f32, 7).stored;
        Stored residual = operand(n, DType::f32, 8).stored;
        const Stored before = residual;
        Workspace workspace(kernels()->sum_squares_workspace(n, 1));
        double squares = 0;
        kernels()->retain(reinterpret_cast<float*>(residual.data()), reinterpret_cast<const float*>(unsent.data()), n, &norm2, &squares,
                          workspace.data());
        CHECK(residual.bytes == (std::isfinite(norm2) ? unsent : before).bytes);
        CHECK(squares == doctest::Approx(dot(values(residual), values(residual))).epsilon(1e-13));
    }
}
