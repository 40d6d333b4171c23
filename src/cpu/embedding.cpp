// Look-ups copy rows. The gradient sorts the tokens by id, so that each row of the table belongs to one thread and its terms are
// added in token order in f32 and rounded once.
#include "cpu/embedding.hpp"
#include "cpu/element.hpp"
#include "cpu/elementwise.hpp"
#include <algorithm>
#include <utility>
#include <vector>

namespace quadrille {

void embedding(const Embedding& e, const std::int32_t* ids, const void* table, void* y, DType t) {
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

using RowToken = std::pair<std::int64_t, std::int64_t>;  // row of the local table, token

// The tokens of this rank's rows, by row and then by token, and where each row's run of them begins (and the end).
struct SortedTokens {
    std::vector<RowToken> tokens;
    std::vector<std::int64_t> begins;
};

SortedTokens sort_tokens(const Embedding& e, const std::int32_t* ids) {
    SortedTokens s;
    for (std::int64_t i = 0; i < e.tokens; ++i)
        if (const std::int64_t row = ids[i] - e.first_row; row >= 0 && row < e.rows) s.tokens.emplace_back(row, i);
    std::sort(s.tokens.begin(), s.tokens.end());
    for (std::size_t i = 0; i < s.tokens.size(); ++i)
        if (i == 0 || s.tokens[i].first != s.tokens[i - 1].first) s.begins.push_back(static_cast<std::int64_t>(i));
    s.begins.push_back(static_cast<std::int64_t>(s.tokens.size()));
    return s;
}

}  // namespace

void embedding_dw(const Embedding& e, const std::int32_t* ids, const void* dy, DType dy_type, void* dtable, DType dtable_type,
                  bool accumulate) {
    if (!accumulate) zero(dtable, e.rows * e.h * bytes_of(dtable_type));
    const SortedTokens s = sort_tokens(e, ids);
    const auto runs = static_cast<std::int64_t>(s.begins.size()) - 1;
    with_type(dy_type, [&]<class S>(S) {
        with_type(dtable_type, [&]<class D>(D) {
            const S* pdy = static_cast<const S*>(dy);
            D* pt = static_cast<D*>(dtable);
#pragma omp parallel if (e.tokens * e.h >= parallel_grain)
            {
                std::vector<float> sum(static_cast<std::size_t>(e.h));
#pragma omp for schedule(dynamic, 4)
                for (std::int64_t run = 0; run < runs; ++run) {
                    std::fill(sum.begin(), sum.end(), 0.0f);
                    for (std::int64_t i = s.begins[run]; i < s.begins[run + 1]; ++i) {
                        const S* term = pdy + s.tokens[i].second * e.h;
#pragma omp simd
                        for (std::int64_t c = 0; c < e.h; ++c) sum[c] += load(term[c]);
                    }
                    D* row = pt + s.tokens[s.begins[run]].first * e.h;
                    for (std::int64_t c = 0; c < e.h; ++c) store(row[c], load(row[c]) + sum[c]);
                }
            }
        });
    });
}

}  // namespace quadrille
