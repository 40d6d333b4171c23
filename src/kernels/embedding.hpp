// Rows of a vocabulary-parallel (or position) table. A rank holds rows [first_row, first_row + rows) of the global table; ids of
// other rows contribute zeros, so the sum over ranks is the whole look-up.
#pragma once
#include <cstdint>

namespace quadrille {

struct Embedding {
    std::int64_t tokens = 0, h = 0;
    std::int64_t first_row = 0, rows = 0;
};

}  // namespace quadrille
