#include "comm/stall_report.hpp"

#include <doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

using namespace quadrille;

namespace {

constexpr double now_there = 1000;

std::string described(int rank, const Origin& o) { return fmt::format("<program {} line {} of rank {}>", o.program, o.line, rank); }

RankEvidence rank(int r) {
    RankEvidence e;
    e.rank = r;
    e.answers = e.known = true;
    e.state = 'S';
    e.taken = now_there;
    e.page.process = 100 + r;
    e.page.doing = static_cast<std::int64_t>(Doing::computes);
    e.page.about = packed({0, 7, {}});
    e.page.since = now_there - 20;
    std::string("node").copy(e.host.data(), 4);
    return e;
}

// The rank has entered `sequence` of the lane at this line; `ago`: seconds. In flight, unless it has left.
void enters(RankEvidence& e, std::int64_t lane, std::int64_t sequence, MoveKind kind, std::int32_t line, double ago, bool left = false) {
    auto at = std::find_if(e.page.lanes.begin(), e.page.lanes.end(), [&](const auto& l) { return l.key == lane || l.key == 0; });
    *at = {lane, 2, sequence};
    e.page.ring[static_cast<std::size_t>(e.page.next++)] = {lane,   sequence,  packed({0, line, Axis::tp}), static_cast<std::int64_t>(kind),
                                                            4096, now_there - ago, left ? now_there - ago + 0.1 : 0};
    if (left) return;
    e.page.doing = static_cast<std::int64_t>(Doing::waits_for_move);
    e.page.about = packed({0, line, {}});
    e.page.since = now_there - ago;
}

bool has(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

}  // namespace

TEST_CASE("a stopped rank: the move that it has not entered, who waits there and for how long, what it does itself") {
    const std::int64_t tp = group_key(std::vector{0, 1});
    std::vector<RankEvidence> ranks = {rank(0), rank(1)};
    enters(ranks[0], tp, 41, MoveKind::all_gather, 800, 13, true);
    enters(ranks[0], tp, 42, MoveKind::all_reduce, 812, 12);
    enters(ranks[1], tp, 41, MoveKind::all_gather, 800, 13, true);
    ranks[1].answers = false;
    ranks[1].state = 'T';
    const std::string text = stall_report(ranks, 10, described);
    INFO(text);
    CHECK(has(text, "no rank has got on for 10.0 s"));
    CHECK(has(text, "rank 1 has not entered all_reduce 42 over tp (4096 bytes), where rank 0 has waited for 12.0 s\n"
                    "      <program 0 line 812 of rank 0>"));
    CHECK(has(text, "rank 1 (process 101 on node, stopped by a signal or a debugger) has been at one operation for 20.0 s\n"
                    "      <program 0 line 7 of rank 1>"));
    CHECK(has(text, "its last moves: all_gather 41 over tp (4096 bytes), entered 13.0 s ago"));
    CHECK_FALSE(has(text, "rank 0 (process"));
    CHECK(waits(ranks[0], 11));
    CHECK_FALSE(waits(ranks[0], 13));
    CHECK_FALSE(waits(ranks[1], 1));
}

TEST_CASE("collectives of two groups in another order: each waits for the other, and both are told of") {
    const std::int64_t a = group_key(std::vector{0, 1}), b = group_key(std::vector{1, 0});
    std::vector<RankEvidence> ranks = {rank(0), rank(1)};
    enters(ranks[0], a, 3, MoveKind::all_reduce, 10, 9);
    enters(ranks[0], b, 2, MoveKind::all_gather, 9, 10, true);
    enters(ranks[1], a, 2, MoveKind::all_reduce, 8, 10, true);
    enters(ranks[1], b, 3, MoveKind::all_gather, 11, 8);
    const std::string text = stall_report(ranks, 5, described);
    INFO(text);
    CHECK(has(text, "rank 1 has not entered all_reduce 3 over tp (4096 bytes), where rank 0 has waited for 9.0 s"));
    CHECK(has(text, "rank 0 has not entered all_gather 3 over tp (4096 bytes), where rank 1 has waited for 8.0 s"));
    CHECK(has(text, "rank 0 (process 100 on node) has waited for a move for 9.0 s"));
    CHECK(has(text, "rank 1 (process 101 on node) has waited for a move for 8.0 s"));
}

TEST_CASE("a message that was never sent, and those who wait for whom it would have woken") {
    std::vector<RankEvidence> ranks = {rank(0), rank(1), rank(2)};
    enters(ranks[1], message_key(0, 1), 1, MoveKind::receive, 4, 30);
    enters(ranks[2], message_key(1, 2), 5, MoveKind::receive, 6, 29);
    ranks[0].page.doing = static_cast<std::int64_t>(Doing::reads_data);
    ranks[0].page.about = 12;
    const std::string text = stall_report(ranks, 25, described);
    INFO(text);
    CHECK(has(text, "rank 0 has not entered its side of receive 1 over tp (4096 bytes), where rank 1 has waited for 30.0 s"));
    CHECK(has(text, "rank 0 (process 100 on node) has waited for the data of step 12 for 20.0 s"));
    CHECK_FALSE(has(text, "rank 2 has waited"));  // the cause is told, not what follows from it
    CHECK(has(text, "the other 2 ranks wait for these, or for each other"));
}

TEST_CASE("a blocking collective of all ranks, and a rank of which nobody can tell") {
    std::vector<RankEvidence> ranks = {rank(0), rank(1), rank(2), {}};
    ranks[3].rank = 3;
    for (const std::size_t r : {1, 2}) {
        ranks[r].page.votes = 58;
        ranks[r].page.voting_since = now_there - 6;
    }
    ranks[0].page.votes = 57;
    ranks[0].page.doing = static_cast<std::int64_t>(Doing::writes_record);
    const std::string text = stall_report(ranks, 6, described);
    INFO(text);
    CHECK(has(text, "rank 0 has not entered gathering 58 of all ranks, where ranks 1 and 2 have waited for 6.0 s"));
    CHECK(has(text, "rank 0 (process 100 on node) has been writing the record for 20.0 s"));
    CHECK(has(text, "rank 3 does not answer, and no other rank of its node can tell of it"));
    CHECK(waits(ranks[1], 6));
    CHECK_FALSE(waits(ranks[3], 0));
}

TEST_CASE("a rank that stops in the middle of a move has entered it") {
    const std::int64_t tp = group_key(std::vector{0, 1});
    std::vector<RankEvidence> ranks = {rank(0), rank(1)};
    for (RankEvidence& r : ranks) enters(r, tp, 42, MoveKind::all_reduce, 812, 12);
    ranks[1].answers = false;
    ranks[1].state = 'T';
    const std::string text = stall_report(ranks, 10, described);
    INFO(text);
    CHECK(has(text, "all_reduce 42 over tp (4096 bytes), which all have entered that could be asked: ranks 0 and 1 have waited for 12.0 s"));
    CHECK(has(text, "rank 1 (process 101 on node, stopped by a signal or a debugger) has waited for a move"));
    CHECK(has(text, "all_reduce 42 over tp (4096 bytes), entered 12.0 s ago and not left"));
}

TEST_CASE("numbers of ranks, as few words as there are runs") {
    const auto of = [](std::vector<int> r) { return text_of_ranks(r); };
    CHECK(of({3}) == "rank 3");
    CHECK(of({0, 1}) == "ranks 0 and 1");
    CHECK(of({0, 1, 2, 5}) == "ranks 0-2 and 5");
    CHECK(of({0, 2, 4, 6, 8, 10, 12, 14, 16, 18}) == "ranks 0, 2, 4, 6, 8, 10, 12 and others");
}

TEST_CASE("a process runs, is stopped, or is gone") {
    CHECK(process_state(getpid()) == 'R');
    const pid_t child = fork();
    if (child == 0) {
        raise(SIGSTOP);
        _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, WUNTRACED) == child);
    CHECK(process_state(child) == 'T');
    kill(child, SIGCONT);
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(process_state(child) == '\0');
}
