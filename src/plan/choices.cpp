#include "plan/choices.hpp"

#include "base/format.hpp"
#include "compile/bucket.hpp"
#include "config/numbers.hpp"
#include "model/model.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

namespace quadrille {
namespace {

struct Traffic {
    AxisSet axes;
    std::int64_t bytes = 0, hops = 0;
};

// Over each set of axes, of the first rank of the program that sends most there.
std::vector<Traffic> traffic(const Compiled& c) {
    std::map<unsigned, Traffic> all;
    for (const Program& p : c.programs) {
        Coordinate at;
        at[Axis::pp] = p.coordinate;
        std::map<unsigned, Traffic> mine;
        for (const Op& op : p.ops) {
            if (!moves_between_ranks(op)) continue;
            const MoveCost cost = move_cost(p, op, at);
            Traffic& t = mine[cost.axes.bits];
            t.axes = cost.axes;
            t.bytes += cost.bytes;
            t.hops += cost.hops;
        }
        for (const auto& [bits, t] : mine)
            if (Traffic& most = all[bits]; most.axes.empty() || t.bytes > most.bytes) most = t;
    }
    std::vector<Traffic> out;
    for (const auto& [bits, t] : all) out.push_back(t);
    return out;
}

struct Candidate {
    std::vector<std::string> order;
    double seconds = 0, far = 0;  // on the wire, nothing at once; bytes by how far they go
};

Candidate weigh(const Config& config, std::vector<std::string> order, const std::vector<Traffic>& sent, const Machine& machine) {
    Config ordered = config;
    ordered.grid.order = order;
    const Grid grid = grid_of(ordered);
    Pace pace(grid, machine);
    Candidate c{std::move(order)};
    for (const Traffic& t : sent) {
        c.seconds += pace.seconds({t.axes, t.bytes, t.hops});
        c.far += static_cast<double>(t.bytes) * pace.ring(t.axes).distance;
    }
    return c;
}

// All orders of the axes that there are, the usual one first; the others behind, where they mean nothing.
std::vector<std::vector<std::string>> orders(const GridConfig& g) {
    std::vector<std::string> real, rest;
    const std::map<std::string, int> extents = {{"dp", g.dp}, {"tp", g.tp}, {"pp", g.pp}, {"sp", g.sp}};
    for (const std::string& axis : GridConfig{}.order) (extents.at(axis) > 1 ? real : rest).push_back(axis);
    std::vector<std::size_t> place(real.size());
    for (std::size_t i = 0; i < place.size(); ++i) place[i] = i;
    std::vector<std::vector<std::string>> all;
    do {
        std::vector<std::string>& order = all.emplace_back();
        for (const std::size_t i : place) order.push_back(real[i]);
        order.insert(order.end(), rest.begin(), rest.end());
    } while (std::next_permutation(place.begin(), place.end()));
    return all;
}

// Of the links that are the slowest of some ring.
std::string speeds_text(const std::vector<Traffic>& sent, Pace& pace, const Machine& m) {
    std::set<Link> met;
    for (const Traffic& t : sent) met.insert(pace.ring(t.axes).farthest);
    std::string s;
    for (const Link l : met)
        s += fmt::format("{}{} {} and {:.3g} GB/s", s.empty() ? "" : ", ", name_of(l), format_seconds(m.links.speed(l).latency),
                         m.links.speed(l).bandwidth * 1e-9);
    return s;
}

std::string known(const Machine& m) { return m.assumed ? "assumed, since a plan knows no machine" : "measured"; }

// "tp 96.0 MiB inside a node, dp 20 MiB between nodes"
std::string sent_text(const Grid& grid, const std::vector<Traffic>& sent, Pace& pace) {
    std::vector<Traffic> sorted = sent;
    std::stable_sort(sorted.begin(), sorted.end(), [](const Traffic& a, const Traffic& b) { return a.bytes > b.bytes; });
    std::string s;
    for (const Traffic& t : sorted)
        s += fmt::format("{}{} {} {}", s.empty() ? "" : ", ", wire_name(grid, t.axes), format_bytes(t.bytes), name_of(pace.ring(t.axes).farthest));
    return s;
}

// Of the programs' moves of gradients and new weights, what a bucket could hold.
struct Units {
    std::int64_t smallest = 0, all = 0, moves = 0;
};

Units units(const Program& p) {
    Units u;
    for (const Op& op : p.ops) {
        if (op.queue != Queue::collective || !travels_in_buckets(p, op)) continue;
        std::int64_t bytes = 0;
        for (const TensorId t : p.inputs(op)) bytes += local_bytes(p.grid(), p.type(t));
        u.smallest = u.moves == 0 ? bytes : std::min(u.smallest, bytes);
        u.all += bytes;
        ++u.moves;
    }
    return u;
}

struct Sized {
    std::int64_t bytes = 0, moves = 0, peak = 0;
    StepTime time;
};

// The longest step of the programs, which wait for each other; none where a size does not fit.
std::optional<Sized> with_bucket(Config config, std::int64_t bytes, const Workspace& workspace, const Machine& machine) {
    config.comm.bucket_size = bytes;
    const Compiled c = compile(config, Purpose::training, workspace);
    const Grid grid = c.tables->grid();
    Pace pace(grid, machine);
    Sized s{bytes, 0, 0, {}};
    for (const Program& p : c.programs) {
        const std::int64_t limit = config.device.memory_limit;
        if (limit > 0 && p.peaks[0].arena > limit) return {};
        s.peak = std::max(s.peak, p.peaks[0].arena);
        s.moves = std::max(s.moves, units(p).moves);
        const StepTime time = step_time(p, pace);
        if (time.seconds > s.time.seconds) s.time = time;
    }
    return s;
}

// From the smallest unit to all of them in some steps, of four or more, and the usual size.
std::vector<std::int64_t> sizes_between(const Units& u) {
    constexpr int most_steps = 6;
    const std::int64_t least = std::max(u.smallest, std::int64_t{64} << 10);
    std::int64_t step = 4;
    while (static_cast<double>(least) * std::pow(step, most_steps) < static_cast<double>(u.all)) step *= 2;
    std::vector<std::int64_t> sizes = {u.smallest};
    for (std::int64_t size = std::int64_t{64} << 10; size < u.all; size *= step)
        if (size > u.smallest) sizes.push_back(size);
    if (const std::int64_t usual = CommConfig{}.bucket_size; u.smallest < usual && usual < u.all) sizes.push_back(usual);
    if (u.all > u.smallest) sizes.push_back(u.all);
    return sizes;
}

}  // namespace

bool leaves_open(const Config& c) { return c.grid.order.empty() || c.comm.bucket_size == 0; }

Config settled_like(Config open, const Config& settled) {
    if (open.grid.order.empty()) open.grid.order = settled.grid.order;
    if (open.comm.bucket_size == 0) open.comm.bucket_size = settled.comm.bucket_size;
    return open;
}

Choice choose_order(Config& config, const Compiled& compiled, const Machine& machine) {
    constexpr double alike = 1.05;  // times that a measurement cannot tell apart
    const std::vector<Traffic> sent = traffic(compiled);
    std::vector<Candidate> all;
    for (std::vector<std::string>& order : orders(config.grid)) all.push_back(weigh(config, std::move(order), sent, machine));
    const auto quicker = [](const Candidate& a, const Candidate& b) { return a.seconds < b.seconds; };
    const auto [first, last] = std::minmax_element(all.begin(), all.end(), quicker);
    const double least = first->seconds, most = last->seconds;
    const Candidate* best = nullptr;
    for (const Candidate& c : all)
        if (c.seconds <= alike * least && (best == nullptr || c.far < best->far * (1 - 1e-9))) best = &c;
    config.grid.order = best->order;
    Choice choice{"grid.order", fmt::format("{}", fmt::join(best->order, "-")), ""};
    if (sent.empty()) {
        choice.reason = "since no rank sends anything";
        return choice;
    }
    const Grid grid = grid_of(config);
    Pace pace(grid, machine);
    choice.reason = fmt::format("since a rank sends {} a step; {} ({}); {} on the wire, the worst order {}", sent_text(grid, sent, pace),
                                speeds_text(sent, pace, machine), known(machine), format_seconds(best->seconds), format_seconds(most));
    return choice;
}

Choice choose_bucket_size(Config& config, const Workspace& workspace, const Machine& machine) {
    constexpr double alike = 0.02, noise = 0.005;  // of what the size changes in all, and of a step: times that cannot be told apart
    constexpr double more_memory = 1.05;           // than the size that takes least
    static constexpr std::int64_t usual = CommConfig{}.bucket_size;
    config.comm.bucket_size = 1;
    Units all;
    for (const Program& p : compile(config, Purpose::training, workspace).programs)
        if (const Units u = units(p); u.all > all.all) all = u;
    config.comm.bucket_size = CommConfig{}.bucket_size;
    Choice choice{"comm.bucket_size", "", ""};
    std::vector<Sized> found;
    for (const std::int64_t size : all.moves > 1 ? sizes_between(all) : std::vector<std::int64_t>{})
        if (const auto s = with_bucket(config, size, workspace, machine)) found.push_back(*s);
    if (found.empty()) {
        choice.value = input::bytes_text(config.comm.bucket_size);
        choice.reason = all.moves > 1 ? "the usual size, since none fits in device.memory_limit" : "the usual size, since there is nothing to join";
        return choice;
    }
    const auto smaller = [](const Sized& a, const Sized& b) { return a.peak < b.peak; };
    const double memory = more_memory * static_cast<double>(std::min_element(found.begin(), found.end(), smaller)->peak);
    std::erase_if(found, [&](const Sized& s) { return static_cast<double>(s.peak) > memory; });
    const auto sooner = [](const Sized& a, const Sized& b) { return a.time.seconds < b.time.seconds; };
    const auto [first, last] = std::minmax_element(found.begin(), found.end(), sooner);
    const double enough = first->time.seconds + std::max(alike * (last->time.seconds - first->time.seconds), noise * first->time.seconds);
    const auto better = [](const Sized& a, const Sized& b) { return std::pair(a.bytes != usual, a.moves) < std::pair(b.bytes != usual, b.moves); };
    const Sized *best = nullptr, &worst = *last;
    for (const Sized& s : found)
        if (s.time.seconds <= enough && (best == nullptr || better(s, *best))) best = &s;
    config.comm.bucket_size = best->bytes;
    choice.value = input::bytes_text(best->bytes);
    const auto added = [](const Sized& s) { return format_seconds(s.time.seconds - s.time.compute); };
    choice.reason = fmt::format("since {} {} of gradients and weights: to {} of arithmetic, at {} a rank, they add {}, with {} {} ({}{})",
                                format_number_of(best->moves, "move") + (best->moves == 1 ? " carries" : " carry"), format_bytes(all.all),
                                format_seconds(best->time.compute), format_count(machine.flops_per_second, "flop/s"), added(*best),
                                input::bytes_text(worst.bytes), added(worst), known(machine),
                                machine.core_share > 0 ? "; moves inside a node take cores from the arithmetic" : "");
    return choice;
}

Choices choose(const Config& config, const Workspace& workspace, const Machine& machine) {
    Choices out{config, {}};
    if (config.grid.order.empty()) {
        out.config = settled_like(config, Config{});
        out.made.push_back(choose_order(out.config, compile(out.config, Purpose::training, workspace), machine));
    }
    if (config.comm.bucket_size == 0) out.made.push_back(choose_bucket_size(out.config, workspace, machine));
    return out;
}

Choices chosen_before(const Config& open, const Config& before) {
    Choices out{settled_like(open, before), {}};
    const std::string reason = "as the run has chosen that goes on here";
    if (open.grid.order.empty()) out.made.push_back({"grid.order", fmt::format("{}", fmt::join(before.grid.order, "-")), reason});
    if (open.comm.bucket_size == 0) out.made.push_back({"comm.bucket_size", input::bytes_text(before.comm.bucket_size), reason});
    return out;
}

std::string text(const Choice& c) { return fmt::format("{} auto: {}, {}", c.key, c.value, c.reason); }

}  // namespace quadrille
