// What of the moves was hidden, in words, from cells made by hand.
#include "record/overlap_report.hpp"

#include <doctest.h>

using namespace quadrille;

namespace {

RunRecord two_ranks() {
    RunRecord r;
    r.coordinates = {{0, 0, 0, 0}, {1, 0, 0, 0}};
    r.hosts = {"alpha", "alpha"};
    r.wire_axes = {"dp", "pp"};
    return r;
}

void add_step(RunRecord& r, std::int64_t step, const std::vector<double>& moves) {
    r.add_step({.step = step}, std::vector<double>(2 * RunRecord::categories.size()), moves);
}

}  // namespace

TEST_CASE("hidden is what of the time under way was not exposed; the first of several steps is left out; an idle axis too") {
    RunRecord r = two_ranks();
    CHECK(overlap_ledger(r).empty());
    CHECK(overlap_line(r).empty());
    // Each rank: dp and pp under way, dp and pp exposed, arithmetic beside, the same alone.
    add_step(r, 1, {90, 0, 90, 0, 50, 5, 90, 0, 90, 0, 50, 5});
    CHECK(overlap_ledger(r).find("0.0 %") != std::string::npos);  // there is no other
    add_step(r, 2, {2, 0, 0.5, 0, 1.5, 1.2, 4, 0, 0.5, 0, 2.5, 2});
    const std::string text = overlap_ledger(r);
    CAPTURE(text);
    CHECK(text.starts_with("moves between ranks, per step, mean of 2 ranks\n"));
    CHECK(text.find("  dp      3.00 s    500 ms   83.3 %\n") != std::string::npos);
    CHECK(text.find("pp") == std::string::npos);
    CHECK(text.ends_with("  arithmetic beside them ran at 80.0 % of its rate (2.00 s a step)\n"));
    CHECK(overlap_line(r) ==
          "moves between ranks: dp 3.00 s a step, 83.3 % hidden; arithmetic beside them ran at 80.0 % of its rate (2.00 s a step)");
}

TEST_CASE("waiting longer than a move was under way hides nothing; without arithmetic beside moves there is no rate") {
    RunRecord r = two_ranks();
    add_step(r, 1, {1, 0, 2, 0, 0, 0, 1, 0, 2, 0, 0, 0});
    CHECK(overlap_line(r) == "moves between ranks: dp 1.00 s a step, 0.0 % hidden");
}

TEST_CASE("arithmetic that was no slower beside moves kept its rate, and no more than that") {
    RunRecord r = two_ranks();
    add_step(r, 1, {1, 0, 0, 0, 2, 2.2, 1, 0, 0, 0, 2, 2.2});
    CHECK(overlap_line(r).ends_with("arithmetic beside them ran at 100.0 % of its rate (2.00 s a step)"));
}

TEST_CASE("a rate of less than a millisecond of arithmetic a step is none") {
    RunRecord r = two_ranks();
    add_step(r, 1, {1, 0, 0, 0, 162e-6, 914e-6, 1, 0, 0, 0, 162e-6, 914e-6});
    CHECK(overlap_line(r) == "moves between ranks: dp 1.00 s a step, 100.0 % hidden");
    CHECK(overlap_ledger(r).find("arithmetic") == std::string::npos);
}
