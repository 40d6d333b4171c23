// What is the CPU's own in attention: workspaces of teams, and which tiles of scores are computed.
#include "attention_case.hpp"
#include "cpu/attention_tiles.hpp"
#include "cpu/kernels.hpp"

using namespace quadrille;
using namespace quadrille::test;

namespace {

// Score tiles that the forward and the backward compute: those that are not wholly masked.
std::int64_t tiles_seen(const Attention& a) {
    std::int64_t count = 0;
    for (std::int64_t b = 0; b < a.shape.b; ++b)
        for (std::int64_t i = 0; i < tiles_of(a.shape.s); ++i) {
            const QueryTile q = query_tile(a, b, 0, i);
            for (std::int64_t j = 0; j < tiles_of(a.shape.t); ++j) count += seen(a, q, key_tile(a, j)) != Seen::none;
        }
    return count * a.shape.n;
}

// Score tiles that each rank computes over all turns: the most over the least.
double imbalance(const std::vector<Positions>& pieces) {
    std::vector<double> tiles;
    for (const Positions& queries : pieces) {
        tiles.push_back(0);
        for (const Positions& keys : pieces) {
            Attention a{};
            a.shape = {1, static_cast<std::int64_t>(queries.size()), static_cast<std::int64_t>(keys.size()), 3, 1, 16};
            a.q_position = queries.data(), a.k_position = keys.data();
            tiles.back() += static_cast<double>(tiles_seen(a));
        }
    }
    return *std::max_element(tiles.begin(), tiles.end()) / *std::min_element(tiles.begin(), tiles.end());
}

}  // namespace

TEST_CASE("a workspace for many threads serves fewer") {
    for (const AttentionShape& shape : {AttentionShape{1, 300, 300, 2, 1, 16}, AttentionShape{2, 300, 300, 6, 3, 16}})
        for (int threads = 1; threads < 16; ++threads)
            for (const bool backward : {false, true})
                CHECK(CpuKernels(threads).attention_workspace(shape, DType::f32, backward) <=
                      CpuKernels(threads + 1).attention_workspace(shape, DType::f32, backward));
}

TEST_CASE("zigzag balances the score tiles, and what is masked is skipped") {
    CHECK(imbalance(zigzag(2048, 4)) <= 1.1);
    CHECK(imbalance(contiguous(2048, 4)) > 6.0);
    CHECK(imbalance(contiguous(2048, 4)) < 7.0);

    const Positions all = range(0, 640);
    Attention a{};
    a.shape = {2, 640, 640, 3, 1, 16};
    a.q_position = a.k_position = all.data();
    CHECK(tiles_seen(a) == 2 * 3 * 55);  // 10 tiles: 1 + 2 + ... + 10
    std::vector<std::int32_t> starts;
    for (std::int32_t i = 0; i < 1280; ++i) starts.push_back(i % 640 / 64 * 64);
    a.document_start = starts.data();
    CHECK(tiles_seen(a) == 2 * 3 * 10);  // documents as long as tiles: the diagonal
}
