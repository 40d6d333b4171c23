#include "plan/pace.hpp"

#include <algorithm>
#include <cmath>

namespace quadrille {

const RingSpeed& Pace::ring(AxisSet axes) {
    const auto [at, fresh] = rings_.try_emplace(axes.bits);
    if (!fresh) return at->second;
    at->second = ring_speed(grid_, axes, machine_.links);
    if (at->second.farthest != Link::network) use_measured(at->second, axes);
    return at->second;
}

// Latency by the smallest all-reduce, time per byte by the largest, of the number of ranks that is nearest (in ratio).
void Pace::use_measured(RingSpeed& ring, AxisSet axes) const {
    if (machine_.all_reduces.empty()) return;
    const double members = static_cast<double>(grid_.size(axes));
    const auto distance = [&](const AllReduceTime& t) { return std::abs(std::log(t.ranks / members)); };
    const auto nearer = [&](const AllReduceTime& a, const AllReduceTime& b) { return distance(a) < distance(b); };
    const int ranks = std::min_element(machine_.all_reduces.begin(), machine_.all_reduces.end(), nearer)->ranks;
    const AllReduceTime *small = nullptr, *large = nullptr;
    for (const AllReduceTime& t : machine_.all_reduces) {
        if (t.ranks != ranks) continue;
        if (small == nullptr || t.bytes < small->bytes) small = &t;
        if (large == nullptr || t.bytes > large->bytes) large = &t;
    }
    if (ranks < 2 || small->bytes == large->bytes) return;
    const double hops = 2 * (ranks - 1), share = hops / ranks;  // of its bytes, what a rank sends
    ring.latency = small->seconds / hops;
    ring.seconds_per_byte = std::max(0.0, large->seconds - small->seconds) / (share * static_cast<double>(large->bytes - small->bytes));
}

double Pace::seconds(const MoveCost& move) {
    const RingSpeed& way = ring(move.axes);
    return static_cast<double>(move.hops) * way.latency + static_cast<double>(move.bytes) * way.seconds_per_byte;
}

double Pace::seconds(Queue queue, std::int64_t bytes) const {
    return static_cast<double>(bytes) / (queue == Queue::disk ? machine_.disk_bandwidth : machine_.copy_bandwidth);
}

namespace {

// What is under way from now on: until when, and what it takes of the arithmetic.
struct Taking {
    double until = 0, share = 0;
};

// When arithmetic that takes so long alone is done, begun at t.
double computed(double t, double alone, const Taking& moves) {
    const double slowed = std::max(0.0, moves.until - t) * (1 - moves.share);  // what is done of it until the moves are
    return moves.until <= t ? t + alone : alone < slowed ? t + alone / (1 - moves.share) : moves.until + alone - slowed;
}

}  // namespace

StepTime step_time(const Program& p, Pace& pace) {
    struct Flying { std::int32_t until; double done; };
    Coordinate at;
    at[Axis::pp] = p.coordinate;
    std::vector<Flying> flying;
    std::map<unsigned, double> free;  // when the way of a set of axes is,
    std::array<double, tier_queues.size()> copied{};  // and a queue between tiers
    std::vector<double> there(p.tensors.size(), 0);   // when what a move brings is
    Taking moves;
    StepTime time;
    double t = 0;
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(p.ops.size()); ++i) {
        const Op& op = p.ops[static_cast<std::size_t>(i)];
        std::erase_if(flying, [&](const Flying& f) {
            if (f.until > i) return false;
            t = std::max(t, f.done);
            return true;
        });
        if (op.queue == Queue::compute) {
            const double takes = flops(p, op) / pace.flops_per_second();
            t = computed(t, takes, moves);
            time.compute += takes;
        } else if (op.queue != Queue::stage) {
            const bool copies = op.kind == Kind::move;
            const MoveCost cost = copies ? MoveCost{} : move_cost(p, op, at);
            double& way = copies ? copied[tier_queue(op.queue)] : free[cost.axes.bits];
            way = std::max(way, t);
            for (const TensorId x : p.inputs(op)) way = std::max(way, there[static_cast<std::size_t>(x)]);
            way += copies ? pace.seconds(op.queue, local_bytes(p.grid(), p.type(p.inputs(op)[0]))) : pace.seconds(cost);
            for (const TensorId y : p.outputs(op)) there[static_cast<std::size_t>(y)] = way;
            if (const double share = copies ? 0 : pace.taken_by(cost.axes); share > 0) moves = {std::max(moves.until, way), share};
            if (op.until < 0) t = way;
            else flying.push_back({op.until, way});
        }
    }
    for (const Flying& f : flying) t = std::max(t, f.done);
    time.seconds = t;
    return time;
}

}  // namespace quadrille
