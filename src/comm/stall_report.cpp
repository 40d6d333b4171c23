#include "comm/stall_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <vector>

namespace quadrille {
namespace {

using Entry = EvidenceCopy::Entry;

constexpr std::size_t most_missed = 6, most_suspects = 6, most_moves = 3, most_runs = 8;
constexpr std::int64_t votes_key = 0;  // the blocking collectives of all ranks, as a lane

bool in_flight(const Entry& e) { return e.sequence > 0 && e.left == 0; }
bool votes(const RankEvidence& r) { return r.page.voting_since > 0; }
bool out_of_action(const RankEvidence& r) { return !r.answers || r.state == 'T' || r.state == 't'; }
bool only_waits(const RankEvidence& r) {
    return r.known && !out_of_action(r) && (votes(r) || r.page.doing == static_cast<std::int64_t>(Doing::waits_for_move));
}

// A move that some wait in and others have not entered.
struct Missed {
    std::int64_t lane = 0, sequence = 0;
    Entry move{};                    // as the first of `waiting` has it; of votes only the time
    std::vector<int> waiting, late;  // ranks
    double longest = 0;              // seconds that one has waited
};

struct Waiting {
    int rank;
    Entry move;
};
using Lanes = std::map<std::int64_t, std::map<std::int64_t, std::vector<Waiting>>>;  // lane → number → who waits

Lanes lanes_of(std::span<const RankEvidence> ranks) {
    Lanes lanes;
    for (const RankEvidence& r : ranks) {
        if (!r.known) continue;
        for (const Entry& e : r.page.ring)
            if (in_flight(e)) lanes[e.lane][e.sequence].push_back({r.rank, e});
        if (!votes(r)) continue;
        Entry vote{};
        vote.entered = r.page.voting_since;
        lanes[votes_key][r.page.votes].push_back({r.rank, vote});
    }
    return lanes;
}

// Number of the last move of the lane that the rank has entered; -1 for one that is no member.
std::int64_t entered(const RankEvidence& r, std::int64_t lane) {
    if (lane == votes_key) return r.page.votes;
    for (const EvidenceCopy::Lane& l : r.page.lanes)
        if (l.key == lane) return l.entered;
    const auto ends = ends_of(lane);
    return is_message_key(lane) && (ends[0] == r.rank || ends[1] == r.rank) ? 0 : -1;  // its end begins with the first message
}

// Of each lane the first move that somebody has not entered; where there is none, the first that somebody waits in.
std::vector<Missed> find_missed(std::span<const RankEvidence> ranks) {
    std::vector<Missed> all;
    for (const auto& [lane, numbers] : lanes_of(ranks)) {
        Missed found;
        for (const auto& [number, waiting] : numbers) {
            Missed m;
            m.lane = lane;
            m.sequence = number;
            m.move = waiting.front().move;
            for (const Waiting& w : waiting) {
                m.waiting.push_back(w.rank);
                m.longest = std::max(m.longest, ranks[static_cast<std::size_t>(w.rank)].taken - w.move.entered);
            }
            for (const RankEvidence& r : ranks) {
                const std::int64_t last = r.known ? entered(r, lane) : -1;
                if (last >= 0 && last < number) m.late.push_back(r.rank);
            }
            if (found.waiting.empty() || !m.late.empty()) found = m;
            if (!m.late.empty()) break;
        }
        all.push_back(std::move(found));
    }
    std::stable_sort(all.begin(), all.end(), [](const Missed& a, const Missed& b) { return a.longest > b.longest; });
    return all;
}

std::string move_text(const Entry& e) {
    const Origin origin = unpacked(e.origin);
    std::string text = fmt::format("{} {}", name_of(static_cast<MoveKind>(e.kind)), e.sequence);
    if (!origin.axes.empty()) text += " over " + origin.axes.text();
    return text + fmt::format(" ({} bytes)", e.bytes);
}

std::string line_text(int rank, const Origin& origin, const DescribeLine& describe) {
    const std::string line = origin.line < 0 || !describe ? std::string() : describe(rank, origin);
    return line.empty() ? line : "\n      " + line;
}

std::string missed_text(const Missed& m, const DescribeLine& describe) {
    const std::string what = m.lane == votes_key ? fmt::format("gathering {} of all ranks", m.sequence) : move_text(m.move);
    const auto have = [](const std::vector<int>& ranks) { return ranks.size() == 1 ? "has" : "have"; };
    const std::string wait = fmt::format("{} {} waited for {:.1f} s", text_of_ranks(m.waiting), have(m.waiting), m.longest);
    const std::string line = m.lane == votes_key ? std::string() : line_text(m.waiting.front(), unpacked(m.move.origin), describe);
    if (m.late.empty()) return fmt::format("\n  {}, which all have entered that could be asked: {}{}", what, wait, line);
    const std::string side = is_message_key(m.lane) ? "its side of " : "";
    return fmt::format("\n  {} {} not entered {}{}, where {}{}", text_of_ranks(m.late), have(m.late), side, what, wait, line);
}

std::string doing_text(const RankEvidence& r, const DescribeLine& describe) {
    const EvidenceCopy& p = r.page;
    if (votes(r)) return fmt::format("has waited in gathering {} of all ranks for {:.1f} s", p.votes, r.taken - p.voting_since);
    const auto doing = static_cast<Doing>(p.doing);
    const auto with_time = [&](const std::string& text) { return fmt::format("{} for {:.1f} s", text, r.taken - p.since); };
    const auto with_line = [&](const std::string& text) { return with_time(text) + line_text(r.rank, unpacked(p.about), describe); };
    switch (doing) {
        case Doing::computes: return with_line("has been at one operation");
        case Doing::waits_for_move: return with_line("has waited for a move");
        case Doing::waits_for_copy: return with_line("has waited for a copy between tiers of memory");
        case Doing::reads_data: return with_time(fmt::format("has waited for the data of step {}", p.about));
        case Doing::writes_record: return with_time("has been writing the record");
        case Doing::saves: return with_time(fmt::format("has been saving the checkpoint of step {}", p.about));
        case Doing::other: break;
    }
    return with_time("has been between two operations");
}

std::string state_text(const RankEvidence& r) {
    switch (r.state) {
        case 'T': case 't': return ", stopped by a signal or a debugger";
        case 'Z': case 'X': case '\0': return ", which is gone";
        case 'D': return ", in I/O that cannot be interrupted";
        default: return r.answers ? "" : ", whose watchdog does not answer";
    }
}

std::string last_moves(const RankEvidence& r) {
    std::vector<const Entry*> moves;
    for (const Entry& e : r.page.ring)
        if (e.sequence > 0) moves.push_back(&e);
    std::sort(moves.begin(), moves.end(), [](const Entry* a, const Entry* b) { return a->entered > b->entered; });
    std::string text;
    for (const Entry* e : std::span(moves).first(std::min(most_moves, moves.size())))
        text += fmt::format("{} {}, entered {:.1f} s ago{}", text.empty() ? "\n      its last moves:" : ";", move_text(*e), r.taken - e->entered,
                            in_flight(*e) ? " and not left" : "");
    return text;
}

std::string suspect_text(const RankEvidence& r, const DescribeLine& describe) {
    if (!r.known) return fmt::format("\n  rank {} does not answer, and no other rank of its node can tell of it", r.rank);
    const std::string host(r.host.data(), strnlen(r.host.data(), r.host.size()));
    return fmt::format("\n  rank {} (process {} on {}{}) {}{}", r.rank, r.page.process, host, state_text(r), doing_text(r, describe), last_moves(r));
}

bool meet(const std::vector<int>& a, const std::vector<int>& b) {
    return std::any_of(a.begin(), a.end(), [&b](int x) { return std::find(b.begin(), b.end(), x) != b.end(); });
}

}  // namespace

char process_state(std::int64_t process) {
    std::ifstream file(fmt::format("/proc/{}/stat", process));
    if (!file) return std::ifstream("/proc/self/stat") ? '\0' : '?';
    std::string line;  // "PID (NAME) STATE ...", where the name may hold anything
    std::getline(file, line, '\0');
    const std::size_t name_end = line.rfind(')');
    return name_end != std::string::npos && name_end + 2 < line.size() ? line[name_end + 2] : '\0';
}

bool waits(const RankEvidence& r, double seconds) {
    if (!r.known) return false;
    if (votes(r) && r.taken - r.page.voting_since >= seconds) return true;
    return std::any_of(r.page.ring.begin(), r.page.ring.end(), [&](const Entry& e) { return in_flight(e) && r.taken - e.entered >= seconds; });
}

std::string text_of_ranks(std::span<const int> ranks) {
    std::vector<std::string> runs;
    for (std::size_t k = 0, end = 0; k < ranks.size(); k = end) {
        for (end = k + 1; end < ranks.size() && ranks[end] == ranks[end - 1] + 1;) ++end;
        const int first = ranks[k], last = ranks[end - 1];
        if (last == first + 1) runs.insert(runs.end(), {std::to_string(first), std::to_string(last)});
        else runs.push_back(first == last ? std::to_string(first) : fmt::format("{}-{}", first, last));
    }
    if (runs.size() > most_runs) {
        runs.resize(most_runs - 1);
        runs.emplace_back("others");
    }
    std::string text = ranks.size() == 1 ? "rank " : "ranks ";
    for (std::size_t k = 0; k < runs.size(); ++k) text += (k == 0 ? "" : k + 1 == runs.size() ? " and " : ", ") + runs[k];
    return text;
}

std::string stall_report(std::span<const RankEvidence> ranks, double still, const DescribeLine& describe) {
    std::vector<Missed> missed = find_missed(ranks);
    std::vector<int> suspects;
    for (const RankEvidence& r : ranks)
        if (!only_waits(r)) suspects.push_back(r.rank);
    if (suspects.empty()) {  // they wait for each other
        for (const Missed& m : missed) suspects.insert(suspects.end(), m.late.begin(), m.late.end());
        std::sort(suspects.begin(), suspects.end());
        suspects.erase(std::unique(suspects.begin(), suspects.end()), suspects.end());
    }
    const auto theirs = [&](const Missed& m) { return meet(m.late, suspects); };
    if (std::any_of(missed.begin(), missed.end(), theirs)) std::erase_if(missed, [&](const Missed& m) { return !theirs(m); });
    std::string text = fmt::format("comm.watchdog: no rank has got on for {:.1f} s, so the job ends", still);
    for (const Missed& m : std::span(missed).first(std::min(most_missed, missed.size()))) text += missed_text(m, describe);
    if (missed.size() > most_missed) text += fmt::format("\n  and {} moves more like these", missed.size() - most_missed);
    for (const int r : std::span(suspects).first(std::min(most_suspects, suspects.size())))
        text += suspect_text(ranks[static_cast<std::size_t>(r)], describe);
    if (suspects.size() > most_suspects) text += fmt::format("\n  and {} ranks more like these", suspects.size() - most_suspects);
    if (const std::size_t others = ranks.size() - suspects.size(); others > 1)
        text += fmt::format("\n  the other {} ranks wait for these, or for each other", others);
    return text;
}

}  // namespace quadrille
