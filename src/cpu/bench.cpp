// Median of five repetitions after one that warms caches and scratch up.
#include "cpu/bench.hpp"
#include "cpu/kernels.hpp"
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <fmt/core.h>
#include <memory>
#include <omp.h>

namespace quadrille {

namespace {

constexpr int repetitions = 5;

template <class F>
double median_seconds(F run) {
    run();
    std::array<double, repetitions> seconds;
    for (double& s : seconds) {
        const auto begin = std::chrono::steady_clock::now();
        run();
        s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    }
    std::sort(seconds.begin(), seconds.end());
    return seconds[repetitions / 2];
}

// Memory of `bytes`, every element the same small number in fp32 and in bf16 alike, touched by the team that will use it.
struct Buffer {
    explicit Buffer(std::int64_t bytes) : words(new std::uint32_t[static_cast<std::size_t>(bytes / 4 + 1)]) {
#pragma omp parallel for schedule(static)
        for (std::int64_t i = 0; i <= bytes / 4; ++i) words[static_cast<std::size_t>(i)] = 0x3F803F80u;
    }
    std::unique_ptr<std::uint32_t[]> words;
};

struct Product {
    std::int64_t m, n, k;
    bool a_transposed, b_transposed;
};

BenchRow bench_product(const Product& p, DType t) {
    const bool weight_gradient = p.a_transposed;  // accumulates in f32
    const DType c_type = weight_gradient ? DType::f32 : t;
    const Buffer a(p.m * p.k * bytes_of(t)), b(p.k * p.n * bytes_of(t)), c(p.m * p.n * bytes_of(c_type));
    Gemm g{.m = p.m, .n = p.n, .k = p.k};
    g.a = a.words.get(), g.a_type = t, g.lda = p.a_transposed ? p.m : p.k, g.a_transposed = p.a_transposed;
    g.b = b.words.get(), g.b_type = t, g.ldb = p.b_transposed ? p.k : p.n, g.b_transposed = p.b_transposed;
    g.c = c.words.get(), g.c_type = c_type, g.ldc = p.n, g.accumulate = weight_gradient;
    CpuKernels kernels(omp_get_max_threads());
    const Buffer workspace(kernels.gemm_workspace(g));
    g.workspace = workspace.words.get();
    BenchRow row{.name = "gemm", .precision = t == DType::f32 ? "fp32" : "bf16"};
    row.shape = fmt::format("{}x{}x{} {}{}", p.m, p.n, p.k, p.a_transposed ? 't' : 'n', p.b_transposed ? 't' : 'n');
    row.seconds = median_seconds([&] { kernels.gemm(g); });
    row.rate = 2e-9 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k) / row.seconds;
    row.unit = "GFLOP/s";
    return row;
}

template <class F>
BenchRow bench_pass(const char* name, std::int64_t bytes, F run) {
    BenchRow row{.name = name, .precision = "fp32", .shape = fmt::format("{}", bytes)};
    row.seconds = median_seconds(run);
    row.rate = 1e-9 * static_cast<double>(bytes) / row.seconds;
    row.unit = "GB/s";
    return row;
}

}  // namespace

void bench_gemm(const EachRow& each) {
    constexpr std::int64_t t = 2048, h = 768, f = 3072, v = 50257;
    constexpr Product products[] = {
        {t, h, h, false, false}, {t, h, h, false, true}, {h, h, t, true, false},  // attention's projections: y, dx, dw
        {t, f, h, false, false}, {t, h, f, false, true}, {h, f, t, true, false},  // up
        {t, h, f, false, false}, {t, f, h, false, true}, {f, h, t, true, false},  // down
        {t, v, h, false, true},  {t, h, v, false, false}, {v, h, t, true, false},  // logits of the tied table
    };
    for (const DType type : {DType::f32, DType::bf16})
        for (const Product& p : products) each(bench_product(p, type));
}

double product_rate(std::int64_t m, std::int64_t n, std::int64_t k, DType type) {
    return 1e9 * bench_product({m, n, k, false, false}, type).rate;
}

void bench_memory(const EachRow& each) {
    constexpr std::int64_t count = std::int64_t{1} << 26;  // fp32 elements: 256 MiB a buffer
    const Buffer a(4 * count), b(4 * count), c(4 * count);
    const auto* pa = reinterpret_cast<const float*>(a.words.get());
    const auto* pb = reinterpret_cast<const float*>(b.words.get());
    auto* pc = reinterpret_cast<float*>(c.words.get());
    each(bench_pass("copy", 8 * count, [=] {
#pragma omp parallel for simd schedule(static)
        for (std::int64_t i = 0; i < count; ++i) pc[i] = pa[i];
    }));
    each(bench_pass("add", 12 * count, [=] {
#pragma omp parallel for simd schedule(static)
        for (std::int64_t i = 0; i < count; ++i) pc[i] = pa[i] + pb[i];
    }));
    each(bench_pass("fill", 4 * count, [=] {
#pragma omp parallel for simd schedule(static)
        for (std::int64_t i = 0; i < count; ++i) pc[i] = 1.0f;
    }));
}

}  // namespace quadrille
