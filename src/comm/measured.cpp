#include "comm/measured.hpp"

#include <algorithm>
#include <utility>

namespace quadrille {
namespace {

// Where nothing was measured: two members gather more than this faster by messages, which MPI libraries copy from one process to another at once.
constexpr std::int64_t copied_once_bytes = 16 << 10;

double ratio(double a, double b) { return std::max(a, b) / std::min(a, b); }

}  // namespace

MeasuredTimes::MeasuredTimes(const std::vector<MeasuredTime>& times) {
    for (const MeasuredTime& ring : times) {
        if (ring.algorithm != Algorithm::ring || ring.ranks < 1 || ring.bytes < 1) continue;
        const auto other = std::find_if(times.begin(), times.end(), [&](const MeasuredTime& t) {
            return t.algorithm == Algorithm::shared && t.kind == ring.kind && t.ranks == ring.ranks && t.bytes == ring.bytes;
        });
        if (other != times.end()) pairs_.push_back({ring.kind, ring.ranks, ring.bytes, other->seconds <= ring.seconds});
    }
}

Algorithm MeasuredTimes::fastest(MoveKind kind, int members, std::int64_t bytes) const {
    const auto size = static_cast<double>(std::max<std::int64_t>(1, bytes));
    const auto distance = [&](const Pair& p) { return std::pair(ratio(p.ranks, members), ratio(static_cast<double>(p.bytes), size)); };
    const Pair* best = nullptr;
    for (const Pair& p : pairs_)
        if (p.kind == kind && (best == nullptr || distance(p) < distance(*best))) best = &p;
    if (best != nullptr) return best->shared ? Algorithm::shared : Algorithm::ring;
    return kind == MoveKind::all_gather && members == 2 && bytes > copied_once_bytes ? Algorithm::ring : Algorithm::shared;
}

}  // namespace quadrille
