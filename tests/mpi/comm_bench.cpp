// The benchmark's rows: every kind by ours and by the library, with sizes in whole elements per rank. No times are judged.
#include "mpi_main.hpp"

#include <set>

#include "comm/bench.hpp"

namespace quadrille::test {

TEST_CASE("rows of bench collectives") {
    const std::int64_t sizes[] = {1, 100003};
    if (world().size() == 1) {
        CHECK_THROWS_AS(bench_collectives(world(), {}, sizes, 1), Error);
        return;
    }
    const std::vector<CollectiveRow> rows = bench_collectives(world(), {}, sizes, 2);
    CHECK(rows.size() == 2 * (3 * 4 + 1 + 2 + 2 + 1));  // three collectives by four algorithms and one untuned, two moves by two, a copy
    std::set<std::string> names;
    for (const CollectiveRow& row : rows) {
        names.insert(row.name);
        CHECK(std::set<std::string>{"auto", "memcpy", "native", "native-untuned", "ring", "shared"}.contains(row.algorithm));
        CHECK(row.ranks == world().size());
        CHECK(row.bytes % (4 * world().size()) == 0);
        CHECK(row.bytes <= 100003);
        CHECK(row.seconds > 0);
        CHECK(row.unit == "GB/s");
    }
    CHECK(names == std::set<std::string>{"all_gather", "all_reduce", "all_to_all", "copy", "reduce_scatter", "send"});
}

}  // namespace quadrille::test
