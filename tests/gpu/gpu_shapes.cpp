// How the GPU's kernels share their work: every element is taken, no count overflows, no grid is too large, at sizes that no test could run.
#include "cuda/gather_runs.hpp"
#include "cuda/map_shape.hpp"
#include "cuda/norm_shape.hpp"

#include <doctest.h>

using namespace quadrille;
using namespace quadrille::cuda;

constexpr std::int64_t many = std::int64_t{1} << 45;

TEST_CASE("blocks over elements take them all, in one turn up to the largest grid") {
    for (const std::int64_t chunk : {1, 4, 8})
        for (const std::int64_t count : std::initializer_list<std::int64_t>{0, 1, 511, 512, 513, 4097, many}) {
            const std::int64_t blocks = map_blocks(count, chunk), of_block = 2 * map_threads * chunk;
            CHECK(blocks <= most_blocks_x);
            if (blocks < most_blocks_x) {
                CHECK(blocks * of_block >= count);
                CHECK((blocks - 1) * of_block < count);
            }
        }
}

TEST_CASE("groups of rows: few enough that their sums are a small part of the operand, enough for all SMs") {
    CHECK(sum_groups(0, 768) == 0);
    CHECK(sum_groups(1, 768) == 1);
    CHECK(sum_groups(65, 1) == 2);
    CHECK(sum_groups(8192, 768) == 128);     // rows are what limits them
    CHECK(sum_groups(65536, 768) == 342);    // 3 blocks beside each other
    CHECK(sum_groups(65536, 12288) == 22);   // 48 blocks beside each other
    CHECK(sum_groups(many, 1) == 1024);
    CHECK(sum_groups(65536, 0) == 1024);
}

// A launch over an empty group would have less than no rows.
TEST_CASE("groups of rows: none is empty, and all rows are taken") {
    std::int64_t wrong = 0;
    const auto check = [&](std::int64_t rows, std::int64_t cols) {
        const RowGroups in = row_groups(rows, cols);
        wrong += (in.groups - 1) * in.size >= rows || in.groups * in.size < rows || in.groups > sum_groups(rows, cols);
    };
    for (std::int64_t cols = 64; cols <= 16384; cols += 64)
        for (std::int64_t rows = 512; rows <= 262144; rows += 512) check(rows, cols);
    for (const std::int64_t cols : {1, 768})
        for (std::int64_t rows = 1; rows < 4096; ++rows) check(rows, cols);
    check(many, 1), check(many, 12288);
    CHECK(wrong == 0);
    CHECK(row_groups(26112, 640).groups == 340);  // of 77 rows: 342 were allowed, two of which would have had none
    CHECK(row_groups(0, 640).groups == 0);
}

TEST_CASE("rows of norms: in registers where they fit, of a warp where that is enough") {
    const auto is = [](const NormShape& s, bool held, int row_threads, int rows) {
        return s.held == held && s.row_threads == row_threads && s.rows == rows;
    };
    CHECK(is(norm_shape(768, 8, true, 4, 512), true, 32, 8));
    CHECK(is(norm_shape(1024, 8, true, 4, 512), true, 32, 8));
    CHECK(is(norm_shape(1032, 8, true, 4, 512), true, 64, 1));
    CHECK(is(norm_shape(4096, 8, true, 4, 512), true, 128, 1));
    CHECK(is(norm_shape(16384, 8, true, 4, 512), true, 512, 1));
    CHECK(is(norm_shape(16392, 8, true, 4, 512), false, 512, 1));
    CHECK(is(norm_shape(4096, 4, true, 4, 512), true, 256, 1));
    CHECK(is(norm_shape(1, 8, false, 4, 512), false, 32, 8));
    CHECK(is(norm_shape(257, 8, false, 4, 512), false, 96, 1));
    CHECK(is(norm_shape(many, 8, true, 4, 512), false, 512, 1));
}

TEST_CASE("rotary: blocks take all positions, the table of angles stays small") {
    for (const std::int64_t s : {1, 7, 1024, 1 << 20})
        for (const std::int64_t n : {1, 12, 64})
            for (const std::int64_t half : {1, 32, 128, 4096}) {
                const RotaryShape shape = rotary_shape(4, s, n * half / 8, half);
                CHECK(shape.positions >= 1);
                CHECK(shape.positions * half <= std::max<std::int64_t>(1024, half));
                CHECK(shape.positions * shape.blocks_x >= s);
                CHECK(shape.blocks_y >= 1);
                CHECK(shape.blocks_y <= 4);
            }
}

TEST_CASE("extents become runs of equal distances, in the widest units that divide them") {
    const Extent rows[] = {{4, 8}, {20, 8}, {36, 8}, {100, 8}, {116, 8}, {200, 3}, {0, 0}, {300, 5}};
    const std::vector<GatherRun> runs = gather_runs_of(rows, 4);
    REQUIRE(runs.size() == 4);
    CHECK(runs[0].from == 16);
    CHECK(runs[0].count == 32);
    CHECK(runs[0].stride == 64);
    CHECK(runs[0].times == 3);
    CHECK(runs[1].to == 3 * 32);
    CHECK(runs[1].times == 2);
    CHECK(runs[3].to == 5 * 32 + 12);
    CHECK(gather_unit(runs, 0) == 4);
    CHECK(gather_unit(std::span(runs).first(2), 0) == 16);
    CHECK(gather_unit(std::span(runs).first(2), 0x1008) == 8);
    CHECK(gather_unit({}, 0x1000) == 16);
}
