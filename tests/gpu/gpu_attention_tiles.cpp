// Attention's tiles on a GPU: what bounds tell of masks, that tiles fit the device, where scratch lies, and which calls are cuDNN's.
#include "cuda/attention_call.hpp"
#include "cuda/fused_attention.hpp"

#include <doctest.h>
#include <numeric>
#include <vector>

using namespace quadrille;
using namespace quadrille::cuda;

namespace {

std::vector<KeyBounds> key_strips(const std::vector<std::int64_t>& positions) {
    std::vector<KeyBounds> strips(static_cast<std::size_t>(parts_of(static_cast<std::int64_t>(positions.size()), strip)));
    for (std::size_t i = 0; i < positions.size(); ++i) strips[i / strip] = both(strips[i / strip], KeyBounds{positions[i], positions[i]});
    return strips;
}

constexpr int heads[] = {64, 128, 256};
constexpr int element_sizes[] = {2, 4};

Attention plain(AttentionShape shape, DType type) {
    Attention a{};
    a.shape = shape, a.type = type, a.in_order = true;
    return a;
}

}  // namespace

TEST_CASE("what bounds tell of a tile of scores") {
    const QueryBounds q{10, 20, 30, 40};  // all see 20..30, nobody outside 10..40
    CHECK(seen(q, {20, 30}) == Seen::all);
    CHECK(seen(q, {20, 31}) == Seen::some);
    CHECK(seen(q, {19, 30}) == Seen::some);
    CHECK(seen(q, {40, 50}) == Seen::some);
    CHECK(seen(q, {41, 50}) == Seen::none);
    CHECK(seen(q, {0, 10}) == Seen::some);
    CHECK(seen(q, {0, 9}) == Seen::none);
    CHECK(seen(QueryBounds{}, {0, 0}) == Seen::none);  // of no query
    CHECK(seen(q, KeyBounds{}) == Seen::none);
}

TEST_CASE("a tile's bounds are those of its strips, of a list that jumps and ends anywhere") {
    std::vector<std::int64_t> positions(150);
    std::iota(positions.begin(), positions.begin() + 70, 1000);
    std::iota(positions.begin() + 70, positions.end(), 5000);
    const std::vector<KeyBounds> strips = key_strips(positions);
    for (const std::int64_t size : {16, 32, 64, 128})
        for (std::int64_t tile = 0; tile < parts_of(150, size); ++tile) {
            const std::int64_t first = tile * size / strip * strip, end = std::min<std::int64_t>(150, parts_of((tile + 1) * size, strip) * strip);
            const KeyBounds bounds = tile_bounds(strips.data(), tile, size, 150);
            CHECK(bounds.first == *std::min_element(positions.begin() + first, positions.begin() + end));
            CHECK(bounds.last == *std::max_element(positions.begin() + first, positions.begin() + end));
        }
}

// What the head of attention_forward.cu says of blocks an SM follows from these.
static_assert(shared_bytes(2, 64, forward_tiling(2, 64), 1, 0) == 54 * 1024 && shared_bytes(2, 128, forward_tiling(2, 128), 1, 0) == 68 * 1024 &&
              shared_bytes(2, 256, forward_tiling(2, 256), 1, 0) == 99 * 1024);
static_assert(shared_bytes(4, 64, forward_tiling(4, 64), 1, 0) == 51 * 1024 && shared_bytes(4, 128, forward_tiling(4, 128), 1, 0) == 99 * 1024 &&
              shared_bytes(4, 256, forward_tiling(4, 256), 1, 0) == 130 * 1024);

TEST_CASE("tiles fit an sm_80's shared memory and the kernels' fragments") {
    for (const int bytes : element_sizes)
        for (const int head : heads) {
            const Tiling forward = forward_tiling(bytes, head), queries = query_tiling(bytes, head), keys = key_tiling(bytes, head);
            INFO("head ", head, " of ", bytes, " bytes");
            CHECK(shared_bytes(bytes, head, forward, 1, 0) <= 163 * 1024);
            CHECK(shared_bytes(bytes, head, queries, 2, 0) <= 163 * 1024);
            CHECK(shared_bytes(bytes, head, keys, 2, sizeof(QueryStatistics)) <= 163 * 1024);
            for (const Tiling& t : {forward, queries, keys}) {
                CHECK(t.columns % 16 == 0);                                      // pairs of tiles of 8 columns
                CHECK((t.rows() % strip == 0 && padded_queries(1) % t.columns == 0));
                CHECK((t.columns % strip == 0 || strip % t.columns == 0));
                CHECK(4 * t.m_tiles * (t.columns / 8) <= 64);                    // a bit a score in one word
                CHECK(t.threads() * 2 >= t.columns);                             // a copy of two statistics a thread
            }
        }
    for (const int head : heads) CHECK(head % key_channels(head) == 0);
    CHECK(row_elements(2, 64) * 2 % 128 == 16);  // rows' pieces of 16 bytes lie in different banks
    CHECK(row_elements(4, 128) * 4 % 128 == 16);
}

TEST_CASE("scratch: parts in order, apart and aligned, at any size") {
    const std::int64_t million = 1'000'000;
    const AttentionShape shapes[] = {{1, 1, 1, 1, 1, 1}, {3, 65, 1000, 6, 2, 64}, {64, million, 4 * million, 128, 8, 128}};
    for (const AttentionShape& shape : shapes)
        for (const bool backward : {false, true}) {
            const cuda::Workspace w = workspace_of(shape, backward);
            CHECK(w.queries >= w.keys + parts_of(shape.t, 32) * 16);
            CHECK(w.statistics >= w.queries + shape.b * parts_of(shape.s, 32) * 32);
            CHECK(w.bytes >= w.statistics + (backward ? shape.b * shape.n * padded_queries(shape.s) * 8 : 0));
            for (const std::int64_t at : {w.keys, w.queries, w.statistics, w.bytes}) CHECK(at % 256 == 0);
        }
}

TEST_CASE("blocks of a grid are counted in 64 bits") {
    CHECK(attention_blocks(6, 129, 128) == 12);
    CHECK(attention_blocks(0, 129, 128) == 0);
    CHECK(attention_blocks(1, (std::int64_t{1} << 31) - 1, 1) == 2147483647u);
    CHECK_THROWS(attention_blocks(std::int64_t{1} << 20, 1 << 20, 64));
}

TEST_CASE("who covers a case: cuDNN what is plain, our own kernels the rest") {
    const AttentionShape shape{2, 1024, 1024, 12, 4, 64};
    CHECK(fused_shape(shape, DType::bf16));
    CHECK(fused_shape(shape, DType::f16));
    CHECK(!fused_shape(shape, DType::f32));
    CHECK(!fused_shape({2, 1024, 512, 12, 4, 64}, DType::bf16));   // other keys than queries
    CHECK(!fused_shape({2, 1024, 1024, 12, 5, 64}, DType::bf16));  // groups of different size
    CHECK(!fused_shape({2, 1024, 1024, 12, 4, 60}, DType::bf16));
    CHECK(!fused_shape({2, 1024, 1024, 12, 4, 256}, DType::bf16));

    const Attention a = plain(shape, DType::bf16);
    CHECK(fused_form(a, DType::bf16, false));
    CHECK(!fused_form(a, DType::f32, false));
    CHECK(!fused_form(a, DType::bf16, true));
    Attention jumps = a, dropped = a, documents = a;
    jumps.in_order = false;
    dropped.dropout.rate = 0.1f;
    const std::int32_t start = 0;
    documents.document_start = &start;
    for (const Attention& other : {jumps, dropped, documents}) CHECK(!fused_form(other, DType::bf16, false));
}

TEST_CASE("lists that are in order") {
    using List = std::vector<std::int64_t>;
    const List run{5, 6, 7, 8}, heads_of_two{0, 0, 0, 1, 1, 1};
    CHECK(in_order(run, run, heads_of_two, 2));
    CHECK(in_order(List{}, List{}, List{0}, 1));
    CHECK(!in_order(run, List{4, 5, 6, 7}, heads_of_two, 2));
    CHECK(!in_order(run, List{5, 6, 7, 8, 9}, heads_of_two, 2));
    CHECK(!in_order(List{0, 1, 6, 7}, List{0, 1, 6, 7}, heads_of_two, 2));  // zigzag
    CHECK(!in_order(run, run, List{0, 1, 0, 1}, 2));
    CHECK(!in_order(run, run, List{0, 0, 1}, 2));
}
