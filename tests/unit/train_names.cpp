// The names that the record has, against those of the rooms that fill it and of the interface.
#include "record/run_record.hpp"
#include "runtime/time_ledger.hpp"

#include "ir/op.hpp"
#include "ir/type.hpp"

#include <doctest.h>

#include <string>
#include <vector>

using namespace quadrille;

namespace {

using Names = std::vector<std::string>;

template <std::size_t n>
Names of_record(const std::array<std::string_view, n>& names) {
    return {names.begin(), names.end()};
}

template <class Enum>
Names of_enum(int count) {
    Names names;
    for (int i = 0; i < count; ++i) names.emplace_back(name_of(static_cast<Enum>(i)));
    return names;
}

}  // namespace

TEST_CASE("time categories") {
    const Names interface = {"compute",       "optimizer",    "exposed_dp",   "exposed_tp", "exposed_sp", "exposed_pp",
                             "pipeline_idle", "exposed_copy", "exposed_disk", "data",       "checkpoint", "compression", "other"};
    CHECK(of_record(RunRecord::categories) == interface);
    CHECK(of_enum<Category>(category_count) == interface);
}

TEST_CASE("tiers and books of memory") {
    CHECK(of_record(RunRecord::tiers) == Names{"device", "host", "nvme"});
    CHECK(of_enum<Tier>(tier_count) == of_record(RunRecord::tiers));
    CHECK(of_record(RunRecord::books) == Names{"weights", "gradients", "optimizer", "activations", "buffers"});
    CHECK(of_enum<Book>(book_count) == of_record(RunRecord::books));
}

TEST_CASE("queues between tiers") {
    CHECK(of_record(RunRecord::copy_queues) == Names{"copy_in", "copy_out", "disk"});
    Names queues;
    for (const Queue queue : tier_queues) queues.emplace_back(name_of(queue));
    CHECK(queues == of_record(RunRecord::copy_queues));
}

TEST_CASE("axes on the wire: dp, or its two factors, tp for both of its own, sp, pp, and sets joined by +") {
    const auto name = [](int replica, int shard, AxisSet axes) {
        return wire_name(Grid::of_user_axes(replica * shard, 4, 2, 2, shard, 2, {"tp", "sp", "dp", "pp"}), axes);
    };
    CHECK(name(1, 2, Axis::shard) == "dp");
    CHECK(name(2, 2, Axis::shard) == "dp_shard");
    CHECK(name(2, 2, Axis::replica) == "dp_replica");
    CHECK(name(1, 2, tensor_axes) == "tp");
    CHECK(name(1, 2, Axis::sp) == "sp");
    CHECK(name(1, 2, Axis::pp) == "pp");
    CHECK(name(1, 2, zero_axes) == "dp+sp");
}
