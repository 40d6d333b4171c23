// Look-ups copy rows. The gradient sorts the tokens by id, so that each row of the table belongs to one thread and its terms are
// added in token order in f32 and rounded once.
#include "cpu/element.hpp"
#include "cpu/kernels.hpp"
#include <algorithm>
#include <compare>
#include <cstddef>
#include <omp.h>

namespace quadrille {

void CpuKernels::embedding(const Embedding& e, const std::int32_t* ids, const void* table, void* y, DType t) {
    with_type(t, [&]<class T>(T) {
        const T* pt = static_cast<const T*>(table);
        T* py = static_cast<T*>(y);
#pragma omp parallel for schedule(static) if (e.tokens * e.h >= parallel_grain)
        for (std::int64_t i = 0; i < e.tokens; ++i) {
            const std::int64_t row = ids[i] - e.first_row;
            if (row >= 0 && row < e.rows)
                std::copy_n(pt + row * e.h, e.h, py + i * e.h);
            else
                std::fill_n(py + i * e.h, e.h, T{});
        }
    });
}

namespace {

struct RowToken {
    std::int64_t row, token;  // row of the local table
    friend auto operator<=>(const RowToken&, const RowToken&) = default;
};

constexpr std::int64_t whole_lines(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }  // of the cache

// The workspace, in this order: this rank's tokens by row and then by number, where each row's run of them begins (and the end), and a sum
// of one row for each thread.
struct Scratch {
    RowToken* tokens;
    std::int64_t* begins;
    std::byte* sums;

    static std::int64_t token_bytes(const Embedding& e) { return whole_lines(e.tokens * static_cast<std::int64_t>(sizeof(RowToken))); }
    static std::int64_t begin_bytes(const Embedding& e) { return whole_lines((e.tokens + 1) * static_cast<std::int64_t>(sizeof(std::int64_t))); }
    static std::int64_t sum_bytes(const Embedding& e) { return whole_lines(e.h * static_cast<std::int64_t>(sizeof(float))); }
    Scratch(const Embedding& e, void* workspace) {
        auto* const at = static_cast<std::byte*>(workspace);
        tokens = reinterpret_cast<RowToken*>(at);
        begins = reinterpret_cast<std::int64_t*>(at + token_bytes(e));
        sums = at + token_bytes(e) + begin_bytes(e);
    }
    float* sum(const Embedding& e, std::int64_t thread) const { return reinterpret_cast<float*>(sums + thread * sum_bytes(e)); }
};

// Fills tokens and begins; the number of runs.
std::int64_t sort_tokens(const Embedding& e, const std::int32_t* ids, const Scratch& s) {
    std::int64_t count = 0, runs = 0;
    for (std::int64_t i = 0; i < e.tokens; ++i)
        if (const std::int64_t row = ids[i] - e.first_row; row >= 0 && row < e.rows) s.tokens[count++] = {row, i};
    std::sort(s.tokens, s.tokens + count);
    for (std::int64_t i = 0; i < count; ++i)
        if (i == 0 || s.tokens[i].row != s.tokens[i - 1].row) s.begins[runs++] = i;
    s.begins[runs] = count;
    return runs;
}

}  // namespace

std::int64_t CpuKernels::embedding_dw_workspace(const Embedding& e) const {
    return Scratch::token_bytes(e) + Scratch::begin_bytes(e) + threads_ * Scratch::sum_bytes(e);
}

void CpuKernels::embedding_dw(const Embedding& e, const std::int32_t* ids, const void* dy, DType dy_type, void* dtable, DType dtable_type,
                              bool accumulate, void* workspace) {
    if (!accumulate) zero(dtable, e.rows * e.h * bytes_of(dtable_type));
    const Scratch s(e, workspace);
    const std::int64_t runs = sort_tokens(e, ids, s);
    with_type(dy_type, [&]<class S>(S) {
        with_type(dtable_type, [&]<class D>(D) {
            const S* pdy = static_cast<const S*>(dy);
            D* pt = static_cast<D*>(dtable);
#pragma omp parallel if (e.tokens * e.h >= parallel_grain)
            {
                float* const sum = s.sum(e, omp_get_thread_num());
#pragma omp for schedule(dynamic, 4)
                for (std::int64_t run = 0; run < runs; ++run) {
                    std::fill_n(sum, e.h, 0.0f);
                    for (std::int64_t i = s.begins[run]; i < s.begins[run + 1]; ++i) {
                        const S* term = pdy + s.tokens[i].token * e.h;
#pragma omp simd
                        for (std::int64_t c = 0; c < e.h; ++c) sum[c] += load(term[c]);
                    }
                    D* row = pt + s.tokens[s.begins[run]].row * e.h;
                    for (std::int64_t c = 0; c < e.h; ++c) store(row[c], load(row[c]) + sum[c]);
                }
            }
        });
    });
}

}  // namespace quadrille
