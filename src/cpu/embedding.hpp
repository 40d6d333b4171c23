// Rows of a vocabulary-parallel (or position) table. A rank holds rows [first_row, first_row + rows) of the global table; ids of
// other rows contribute zeros, so the sum over ranks is the whole look-up. Results are the same for any number of OpenMP threads.
#pragma once
#include "ir/dtype.hpp"
#include <cstdint>

namespace quadrille {

struct Embedding {
    std::int64_t tokens = 0, h = 0;
    std::int64_t first_row = 0, rows = 0;
};

// y[tokens,h] = table[ids - first_row], or 0 where the id is not in this rank's rows. table and y have type t.
void embedding(const Embedding& e, const std::int32_t* ids, const void* table, void* y, DType t);

// dtable[rows,h] (+)= sum of dy[i] over the tokens i with that id, tokens in ascending order. Without accumulate the table is zeroed first.
// workspace: embedding_dw_workspace bytes, 64-byte aligned, of this call alone, for up to `threads` OpenMP threads.
void embedding_dw(const Embedding& e, const std::int32_t* ids, const void* dy, DType dy_type, void* dtable, DType dtable_type, bool accumulate,
                  void* workspace);
std::int64_t embedding_dw_workspace(const Embedding& e, int threads);

}  // namespace quadrille
