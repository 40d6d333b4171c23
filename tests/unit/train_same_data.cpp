// Which ranks read the same sequences of a step, and what is said where they have not.
#include "train/same_data.hpp"

#include <doctest.h>

using namespace quadrille;

namespace {

// Every rank's hash is its replica's number plus 10.
std::vector<std::int64_t> hashes(const Grid& grid) {
    std::vector<std::int64_t> out;
    for (std::int64_t r = 0; r < grid.ranks(); ++r) out.push_back(10 + grid.position(grid.coordinate(r), data_axes));
    return out;
}

}  // namespace

TEST_CASE("each sequence counts once, however many ranks read it") {
    const std::vector<std::string> order = {"tp", "sp", "dp", "pp"};
    CHECK(hash_of_batch(Grid::of_user_axes(1, 1, 1, 1, 1, 1, order), std::vector<std::int64_t>{7}) == 7);
    for (const int shard : {1, 2})
        for (const auto& [tp, pp, sp] : {std::array{1, 1, 1}, std::array{2, 1, 1}, std::array{1, 2, 1}, std::array{1, 1, 2}, std::array{2, 2, 2}}) {
            const Grid grid = Grid::of_user_axes(2, tp, pp, sp, shard, 1, order);
            CHECK(hash_of_batch(grid, hashes(grid)) == 21);
            CHECK(different_sequences(grid, 1, hashes(grid)) == "");
        }
}

TEST_CASE("a rank that has read other tokens than its replica is named, with the step") {
    const Grid grid = Grid::of_user_axes(2, 1, 2, 1, 1, 1, {"tp", "sp", "dp", "pp"});
    std::vector<std::int64_t> read = hashes(grid);
    read[3] += 1;
    const std::string said = different_sequences(grid, 12, read);
    CHECK_MESSAGE(said.find("step 12: ranks 1 and 3 ") != std::string::npos, said);
    CHECK(different_sequences(Grid::of_user_axes(4, 1, 1, 1, 1, 1, {"tp", "sp", "dp", "pp"}), 12, read) == "");  // no two read the same
}
