// Mutants of programs that cut the sequence.
#include "compile_mutate.hpp"

#include <doctest.h>

#include <algorithm>

using namespace quadrille;
using namespace quadrille::test;

TEST_CASE("sequence parallel") {
    Config ulysses = on_grid(wide(small_llama()), 2, 1, 1, 3);
    ulysses.sequence.method = SequenceMethod::ulysses;
    ulysses.data.mask_across_documents = true;
    Config ring = on_grid(small_llama(), 1, 1, 1, 3);
    ring.sequence.layout = SequenceLayout::contiguous;
    ring.data.mask_across_documents = true;
    ring.model.hidden_dropout = ring.model.attention_dropout = 0.1;
    Config both = on_grid(small_gpt(), 1, 2, 1, 3);
    both.sequence.method = SequenceMethod::ulysses;
    both.tensor.sequence_parallel = true;
    Config remade = on_grid(small_llama(), 1, 1, 1, 3);
    remade.recompute.granularity = Granularity::full;
    remade.model.hidden_dropout = remade.model.attention_dropout = 0.1;
    break_and_judge("sequence parallel",
                    {{"sp 3 dp 2, Ulysses, documents", ulysses},
                     {"sp 3, ring of blocks, documents, dropout", ring},
                     {"sp 3 tp 2, Ulysses, Megatron", both},
                     {"sp 3, ring, full recompute, dropout", remade}});
}

TEST_CASE("all executables together break programs in at least 20 kinds, each somewhere, and over a thousand times") {
    int least = 0;
    for (const Share& s : shares()) least += s.least;
    CHECK(least > 1000);
    const std::vector<MutationKind> kinds = all_mutations();
    CHECK(kinds.size() >= 20);
    for (const MutationKind& k : kinds) {
        const auto makes = [&](const Share& s) { return !s.lacks.count(k.name); };
        CHECK_MESSAGE(std::any_of(shares().begin(), shares().end(), makes), k.name);
    }
}
