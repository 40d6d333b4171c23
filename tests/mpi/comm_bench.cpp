// The benchmark's rows: every kind twice, ours and the library's, with sizes in whole elements per rank. No times are judged.
#include "mpi_main.hpp"

#include <set>

#include "comm/bench.hpp"

namespace quadrille::test {

TEST_CASE("rows of bench collectives") {
    Engine engine(world());
    const std::int64_t sizes[] = {1, 100003};
    if (world().size() == 1) {
        CHECK_THROWS_AS(bench_collectives(world(), engine, sizes, 1), Error);
        return;
    }
    const std::vector<CollectiveRow> rows = bench_collectives(world(), engine, sizes, 2);
    CHECK(rows.size() == 2 * 5 * 2);
    std::set<std::string> names;
    for (const CollectiveRow& row : rows) {
        names.insert(row.name);
        CHECK((row.algorithm == "ring" || row.algorithm == "native"));
        CHECK(row.ranks == world().size());
        CHECK(row.bytes % (4 * world().size()) == 0);
        CHECK(row.bytes <= 100003);
        CHECK(row.seconds > 0);
        CHECK(row.unit == "GB/s");
    }
    CHECK(names == std::set<std::string>{"all_gather", "all_reduce", "all_to_all", "reduce_scatter", "send"});
}

}  // namespace quadrille::test
