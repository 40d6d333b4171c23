// Every product is cut in one part of C per thread, each computed in blocks by oneDNN's single-threaded sgemm: bias, gelu and
// rounding then find the block in the cache. 16-bit operands are widened block by block: where the CPU has no matrix unit its bf16
// dot products run at half the rate of its fp32 FMAs (Sapphire Rapids without AMX: 92 against 170 GFLOP/s a core), and widening
// costs a tenth. Where it has one, gemm_native takes the bf16 products; f16 products are always widened. Widened blocks lie in the
// workspace, a few MiB a thread, whatever the CPU; beside it oneDNN (2.6 or 3.x) packs blocks in memory of its own. The summation order
// is oneDNN's. gemm_gelu works in blocks of rows, so that the gelu reads C from the cache.
#include "cpu/element.hpp"
#include "cpu/gemm_native.hpp"
#include "cpu/kernels.hpp"
#include <algorithm>
#include <array>
#include <oneapi/dnnl/dnnl.h>
#include <omp.h>

namespace quadrille {

namespace {

constexpr std::int64_t block_m = 512, block_n = 768, block_k = 384;
constexpr std::int64_t pad = 16;  // between the rows of widened blocks, so that they do not fall into the same cache sets

// A range of one dimension of C.
struct Range {
    std::int64_t begin = 0, end = 0;
    std::int64_t size() const { return end - begin; }
};

Range intersect_block(Range r, std::int64_t begin, std::int64_t size) { return {begin, std::min(r.end, begin + size)}; }

// Part `i` of `parts` nearly equal parts of [0, extent), in whole multiples of 48 (the height of oneDNN's register tile).
Range share(std::int64_t extent, std::int64_t parts, std::int64_t i) {
    const std::int64_t tiles = (extent + 47) / 48;
    return {std::min(extent, tiles * i / parts * 48), std::min(extent, tiles * (i + 1) / parts * 48)};
}

// How many parts the rows are cut in; the columns in threads / that. The cut that packs the least.
std::int64_t row_parts(const Gemm& g, std::int64_t threads) {
    std::int64_t best = 1;
    double least = 0.0;
    for (std::int64_t p = 1; p <= threads; ++p) {
        if (threads % p) continue;
        const double packed = static_cast<double>(g.m) / static_cast<double>(p) + static_cast<double>(g.n * p) / static_cast<double>(threads);
        if (p == 1 || packed < least) least = packed, best = p;
    }
    return best;
}

constexpr std::int64_t whole_lines(std::int64_t floats) { return (floats + 15) / 16 * 16; }  // of the cache

// One thread's widened blocks of A and B, and the block of a 16-bit C before it is rounded.
struct Blocks {
    float *a = nullptr, *b = nullptr, *c = nullptr;

    static std::int64_t floats(const Gemm& g) {
        const auto [a, b, c] = sizes(g);
        return a + b + c;
    }
    static Blocks of(const Gemm& g, std::int64_t thread) {
        if (!g.workspace) return {};
        const auto [a, b, c] = sizes(g);
        float* const at = static_cast<float*>(g.workspace) + thread * (a + b + c);
        return {at, at + a, at + a + b};
    }

  private:
    static std::array<std::int64_t, 3> sizes(const Gemm& g) {
        if (!half_width(g.a_type)) return {};
        const std::int64_t m = std::min(block_m, g.m), n = std::min(block_n, g.n), k = std::min(block_k, g.k);
        return {whole_lines(g.a_transposed ? k * (m + pad) : m * (k + pad)), whole_lines(g.b_transposed ? n * (k + pad) : k * (n + pad)),
                half_width(g.c_type) ? whole_lines(m * n) : 0};
    }
};

void sgemm(bool ta, bool tb, std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda, const float* b,
           std::int64_t ldb, float beta, float* c, std::int64_t ldc) {
    const auto status = dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, 1.0f, a, lda, b, ldb, beta, c, ldc);
    if (status != dnnl_success) require(false, fmt::format("gemm: oneDNN's sgemm failed with status {}", static_cast<int>(status)));
}

// The rows x cols block of a 16-bit matrix at `first`, widened to fp32 rows cols + pad apart.
template <HalfWidth T>
const float* widened(float* out, const T* first, std::int64_t ld, std::int64_t rows, std::int64_t cols) {
    for (std::int64_t r = 0; r < rows; ++r) {
        const T* const from = first + r * ld;
        float* const to = out + r * (cols + pad);
#pragma omp simd
        for (std::int64_t c = 0; c < cols; ++c) to[c] = load(from[c]);
    }
    return out;
}

// sum[rows,cols] (+)= the product of a block of C over all of k, f32 operands in place.
void product_f32(const Gemm& g, Range rows, Range cols, float beta, float* c, std::int64_t ldc) {
    const float* a = static_cast<const float*>(g.a) + (g.a_transposed ? rows.begin : rows.begin * g.lda);
    const float* b = static_cast<const float*>(g.b) + (g.b_transposed ? cols.begin * g.ldb : cols.begin);
    sgemm(g.a_transposed, g.b_transposed, rows.size(), cols.size(), g.k, a, g.lda, b, g.ldb, beta, c, ldc);
}

// The same for 16-bit operands, k in blocks.
template <HalfWidth T>
void product_widened(const Gemm& g, const Blocks& blocks, Range rows, Range cols, float beta, float* c, std::int64_t ldc) {
    const T* a = static_cast<const T*>(g.a) + (g.a_transposed ? rows.begin : rows.begin * g.lda);
    const T* b = static_cast<const T*>(g.b) + (g.b_transposed ? cols.begin * g.ldb : cols.begin);
    const std::int64_t m = rows.size(), n = cols.size();
    for (std::int64_t k0 = 0; k0 < g.k; k0 += block_k) {
        const std::int64_t k = std::min(block_k, g.k - k0);
        const float* wa = g.a_transposed ? widened(blocks.a, a + k0 * g.lda, g.lda, k, m) : widened(blocks.a, a + k0, g.lda, m, k);
        const float* wb = g.b_transposed ? widened(blocks.b, b + k0, g.ldb, n, k) : widened(blocks.b, b + k0 * g.ldb, g.ldb, k, n);
        const std::int64_t lda = (g.a_transposed ? m : k) + pad, ldb = (g.b_transposed ? k : n) + pad;
        sgemm(g.a_transposed, g.b_transposed, m, n, k, wa, lda, wb, ldb, k0 ? 1.0f : beta, c, ldc);
    }
}

// c = sum + bias, rounded; y = gelu(c). sum may be c itself.
template <class T>
void finish_row(const float* sum, const float* bias, T* c, T* y, std::int64_t n) {
    if (bias) {
#pragma omp simd
        for (std::int64_t j = 0; j < n; ++j) store(c[j], sum[j] + bias[j]);
    } else {
#pragma omp simd
        for (std::int64_t j = 0; j < n; ++j) store(c[j], sum[j]);
    }
    if (y) {
#pragma omp simd
        for (std::int64_t j = 0; j < n; ++j) store(y[j], gelu32(load(c[j])));
    }
}

template <class T>
void finish_block(const Gemm& g, Range rows, Range cols, const float* sum, std::int64_t ld, T* y) {
    const std::int64_t n = cols.size();
    float bias[block_n];
    if (g.bias)
        with_type(g.bias_type, [&]<class B>(B) {
            for (std::int64_t j = 0; j < n; ++j) bias[j] = load(static_cast<const B*>(g.bias)[cols.begin + j]);
        });
    for (std::int64_t i = 0; i < rows.size(); ++i) {
        const std::int64_t at = (rows.begin + i) * g.ldc + cols.begin;
        finish_row(sum + i * ld, g.bias ? bias : nullptr, static_cast<T*>(g.c) + at, y ? y + at : nullptr, n);
    }
}

void compute_block(const Gemm& g, const Blocks& blocks, void* y, Range rows, Range cols) {
    const bool narrow = half_width(g.c_type);
    float* const c = narrow ? blocks.c : static_cast<float*>(g.c) + rows.begin * g.ldc + cols.begin;
    const std::int64_t ldc = narrow ? cols.size() : g.ldc;
    const float beta = g.accumulate ? 1.0f : 0.0f;
    with_type(g.a_type, [&]<class T>(T) {
        if constexpr (HalfWidth<T>)
            product_widened<T>(g, blocks, rows, cols, beta, c, ldc);
        else
            product_f32(g, rows, cols, beta, c, ldc);
    });
    if (narrow || g.bias || y) with_type(g.c_type, [&]<class T>(T) { finish_block(g, rows, cols, c, ldc, static_cast<T*>(y)); });
}

void compute_part(const Gemm& g, const Blocks& blocks, void* y, Range rows, Range cols) {
    const bool plain = g.a_type == DType::f32 && !g.bias && !y;  // nothing to do between blocks: oneDNN blocks better itself
    const std::int64_t bm = plain ? rows.size() : block_m, bn = plain ? cols.size() : block_n;
    for (std::int64_t i = rows.begin; i < rows.end; i += bm)
        for (std::int64_t j = cols.begin; j < cols.end; j += bn)
            compute_block(g, blocks, y, intersect_block(rows, i, bm), intersect_block(cols, j, bn));
}

// y = gelu(C), for products that oneDNN did whole.
template <class T>
void gelu_rows(const Gemm& g, T* y) {
    const T* const c = static_cast<const T*>(g.c);
#pragma omp parallel for schedule(static) if (g.m * g.n >= parallel_grain)
    for (std::int64_t row = 0; row < g.m; ++row)
        for (std::int64_t i = row * g.ldc; i < row * g.ldc + g.n; ++i) store(y[i], gelu32(load(c[i])));
}

// Of nothing summed there is the bias and what C had.
template <class T>
void empty_product(const Gemm& g, T* y) {
    for (std::int64_t row = 0; row < g.m; ++row)
        for (std::int64_t i = 0; i < g.n; ++i) {
            T& c = static_cast<T*>(g.c)[row * g.ldc + i];
            if (!g.accumulate) store(c, 0.0f);
            if (g.bias) with_type(g.bias_type, [&]<class B>(B) { store(c, load(static_cast<const B*>(g.bias)[i])); });
            if (y) store(y[row * g.ldc + i], gelu32(load(c)));
        }
}

void compute(const Gemm& g, void* y) {
    require_types(g);
    require(g.workspace != nullptr || Blocks::floats(g) == 0, "gemm: 16-bit operands need workspace");
    if (g.m == 0 || g.n == 0) return;
    if (g.k == 0) return with_type(g.c_type, [&]<class T>(T) { empty_product(g, static_cast<T*>(y)); });
    if (g.a_type == DType::bf16 && native_bf16()) {
        gemm_native(g);
        if (y) with_type(g.c_type, [&]<class T>(T) { gelu_rows(g, static_cast<T*>(y)); });
        return;
    }
    const std::int64_t threads = omp_in_parallel() ? 1 : omp_get_max_threads();
    const std::int64_t row_count = row_parts(g, threads), column_count = threads / row_count;
#pragma omp parallel for schedule(static) if (threads > 1)
    for (std::int64_t part = 0; part < threads; ++part)
        compute_part(g, Blocks::of(g, part), y, share(g.m, row_count, part / column_count), share(g.n, column_count, part % column_count));
}

}  // namespace

std::int64_t CpuKernels::gemm_workspace(const Gemm& g) const { return threads_ * Blocks::floats(g) * static_cast<std::int64_t>(sizeof(float)); }

void CpuKernels::gemm(const Gemm& g) { compute(g, nullptr); }

void CpuKernels::gemm_gelu(const Gemm& g, void* y) {
    require(!g.accumulate, "gemm_gelu: accumulate is not meant here");
    compute(g, y);
}

std::string matrix_library() {
    const dnnl_version_t* v = dnnl_version();
    return "oneDNN " + std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch);
}

}  // namespace quadrille
