// Runs of elements as boxes: the same elements, and few boxes where a few do.
#include "checkpoint/boxes.hpp"

#include "base/random.hpp"

#include <doctest.h>

using namespace quadrille;

namespace {

std::vector<std::int64_t> elements_of(const std::vector<std::int64_t>& shape, const std::vector<Box>& boxes) {
    std::int64_t size = 1;
    for (const std::int64_t n : shape) size *= n;
    std::vector<std::int64_t> out;
    for (std::int64_t e = 0; e < size; ++e) {
        int in = 0;
        for (const Box& box : boxes) {
            bool inside = true;
            std::int64_t rest = e;
            for (std::size_t d = shape.size(); d-- > 0; rest /= shape[d])
                inside = inside && rest % shape[d] >= box.start[d] && rest % shape[d] < box.start[d] + box.count[d];
            in += inside;
        }
        CHECK(in <= 1);
        if (in) out.push_back(e);
    }
    return out;
}

}  // namespace

TEST_CASE("a piece of every element is in one box, whatever the runs") {
    for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{17}, {5, 7}, {3, 4, 5}, {1, 6, 1}, {2, 1, 3, 4}})
        for (std::uint64_t seed = 0; seed < 200; ++seed) {
            std::int64_t size = 1, at = 0;
            for (const std::int64_t n : shape) size *= n;
            Extents runs;
            std::vector<std::int64_t> wanted;
            for (std::uint64_t k = 0; at < size; ++k) {
                at += static_cast<std::int64_t>(random_bits(seed, 2 * k) % 9);
                const std::int64_t n = std::min<std::int64_t>(size - at, static_cast<std::int64_t>(random_bits(seed, 2 * k + 1) % 13));
                if (n > 0) runs.push_back({at, n});
                for (std::int64_t e = 0; e < n; ++e) wanted.push_back(at + e);
                at += std::max<std::int64_t>(n, 0);
            }
            CHECK(elements_of(shape, boxes_of(shape, runs)) == wanted);
        }
}

TEST_CASE("whole rows, columns and blocks are one box; a slice of a flat buffer at most three in a matrix") {
    CHECK(boxes_of({8, 6}, {{12, 30}}) == std::vector<Box>{{{2, 0}, {5, 6}}});
    Extents columns, planes;
    for (std::int64_t row = 0; row < 8; ++row) columns.push_back({row * 6 + 3, 3});
    CHECK(boxes_of({8, 6}, columns) == std::vector<Box>{{{0, 3}, {8, 3}}});
    for (std::int64_t i = 0; i < 4; ++i)
        for (std::int64_t j = 0; j < 5; ++j) planes.push_back({(i * 5 + j) * 6 + 2, 2});
    CHECK(boxes_of({4, 5, 6}, planes) == std::vector<Box>{{{0, 0, 2}, {4, 5, 2}}});
    CHECK(boxes_of({1000, 1000}, {{1500, 700000}}).size() == 3);
    CHECK(boxes_of({5}, {}).empty());
}
