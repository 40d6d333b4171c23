#include "runtime/step_run.hpp"

#include "base/error.hpp"
#include "runtime/bindings.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace quadrille {

StepRun::StepRun(const Tasks& tasks, Engine& engine, Copies* copies, const StepInputs& inputs)
    : tasks_(tasks), engine_(engine), evidence_(engine.evidence()), copies_(copies), device_(tasks.device()), inputs_(inputs),
      tickets_(tasks.moves()), copy_tickets_(tasks.moves()), times_(tasks.moves()), ledger_(now(), tasks.device().queues()) {
    device_.settle();
    result_.sent_bytes.assign(tasks.accounts(), 0);
    result_.wire.resize(tasks.accounts());
    if (tasks.accounts() > 0) ran_.reserve(static_cast<std::size_t>(tasks.count()));
}

void StepRun::compute(std::int32_t op) {
    const Task& task = tasks_.at(op);
    ledger_.charge(Category::other, now());
    const double begin = ledger_.last();
    evidence_.doing(Doing::computes, tasks_.origin(op), begin);
    if (device_.queues() && !task.by_host) return put_on_queue(op);
    settle(op);
    task.kernel(inputs_);
    ledger_.charge(task.category, now());
    if (task.like >= 0 && tasks_.accounts() > 0) ran_.push_back({task.like, {begin, ledger_.last()}});
    done(op, begin, ledger_.last());
}

// What goes wrong in f names the op.
template <class F>
void StepRun::naming(std::int32_t op, F f) const {
    try {
        f();
    } catch (const Error& e) {
        const Program& p = tasks_.program();
        throw Error(e.exit(), fmt::format("program line {} ({}): {}", op, label(p, p.ops[static_cast<std::size_t>(op)]), e.what()));
    }
}

void StepRun::put_on_queue(std::int32_t op) {
    const Task& task = tasks_.at(op);
    require(!task.scalar, "runtime: a number that the loop reads is made on a device with queues, and not brought to the host");
    Queued queued{op, std::exchange(waits_, Category::other), device_.mark(), nullptr};
    naming(op, [&] { task.kernel(inputs_); });
    queued.end = device_.mark();
    if (task.in_host) in_host_ = queued.end;
    queued_.push_back(std::move(queued));
}

void StepRun::settle(std::int32_t op) {
    if (in_host_) std::exchange(in_host_, nullptr)->wait();
    for (const std::int32_t copy : behind_) {
        const TierMove& m = *tasks_.at(copy).between_tiers;
        if (conflict(tasks_.at(op).by_thread, {{m.from}, {m.to}})) copies_->wait(copy_tickets_[slot(copy)]);
    }
}

// Debug: everything is over that was put on queues before.
void StepRun::poison_before(std::int32_t op) {
    if (in_host_) std::exchange(in_host_, nullptr)->wait();
    for (const std::int32_t copy : behind_) copies_->wait(copy_tickets_[slot(copy)]);
    tasks_.poison_before(op);
}

void StepRun::expose(const Task& task, double seconds) { result_.wire[static_cast<std::size_t>(task.account)].exposed += seconds; }

void StepRun::start(std::int32_t op) {
    const Task& task = tasks_.at(op);
    if (task.between_tiers) return start_between_tiers(op);
    ledger_.charge(Category::other, now());
    after_.clear();
    for (const std::int32_t move : task.waits.after) {
        if (!tasks_.at(move).between_tiers) { after_.push_back(tickets_[slot(move)]); continue; }
        evidence_.doing(Doing::waits_for_copy, tasks_.origin(move), ledger_.last());
        copies_->wait(copy_tickets_[slot(move)]);  // the engine knows no copies; what it needs was issued well before
        ledger_.charge(tasks_.at(move).category, now());
    }
    settle(op);
    tickets_[slot(op)] = engine_.start(task.move, after_, &times_[slot(op)]);
    expose(task, ledger_.charge(task.category, now()));
}

void StepRun::start_between_tiers(std::int32_t op) {
    const Task& task = tasks_.at(op);
    std::vector<Ticket> moves;
    std::vector<CopyTicket> copies;
    for (const std::int32_t move : task.waits.after) {
        if (tasks_.at(move).between_tiers) copies.push_back(copy_tickets_[slot(move)]);
        else moves.push_back(tickets_[slot(move)]);
    }
    copy_tickets_[slot(op)] = copies_->start(*task.between_tiers, std::move(moves), std::move(copies), &times_[slot(op)]);
}

void StepRun::wait(std::int32_t op) {
    ledger_.charge(Category::other, now());
    evidence_.doing(tasks_.at(op).between_tiers ? Doing::waits_for_copy : Doing::waits_for_move, tasks_.origin(op), ledger_.last());
    if (tasks_.at(op).between_tiers) copies_->wait(copy_tickets_[slot(op)]);
    else engine_.wait(tickets_[slot(op)]);
    arrived(op);
}

// A copy that a kernel waits for is waited for by its queue; but numbers are taken from memory as soon as they are there.
void StepRun::wait_before(std::int32_t op, std::int32_t move) {
    const Task &task = tasks_.at(move), &waiting = tasks_.at(op);
    const bool by_queue = device_.queues() && waiting.does == Task::Does::compute && !waiting.by_host;
    if (!by_queue || !task.between_tiers || task.scalar) return wait(move);
    ledger_.charge(Category::other, now());
    evidence_.doing(Doing::waits_for_copy, tasks_.origin(move), ledger_.last());
    copies_->compute_after(copy_tickets_[slot(move)]);
    ledger_.charge(task.category, now());
    waits_ = task.category;
    behind_.push_back(move);
}

// The queue is empty then, and its ops and the copies they waited for are told of. Waited for one by one: the device stops at the op that fails.
void StepRun::finish_queue() {
    for (const Queued& q : queued_) {
        evidence_.doing(Doing::computes, tasks_.origin(q.op), now());
        naming(q.op, [&] { q.end->wait(); });
    }
    for (const std::int32_t copy : behind_) wait(copy);
    std::vector<QueuedTime> ran;
    for (const Queued& q : queued_) {
        const Task& task = tasks_.at(q.op);
        const double begin = q.begin->seconds(), end = q.end->seconds();
        ran.push_back({task.category, q.waited, begin, end});
        if (task.like >= 0 && tasks_.accounts() > 0) ran_.push_back({task.like, {begin, end}});
        done(q.op, begin, end);
    }
    queued_times_ = std::move(ran);
}

void StepRun::move(std::int32_t op) {
    if (tasks_.at(op).between_tiers) {
        start(op);
        return wait(op);
    }
    ledger_.charge(Category::other, now());
    evidence_.doing(Doing::waits_for_move, tasks_.origin(op), ledger_.last());
    settle(op);
    engine_.run(tasks_.at(op).move, &times_[slot(op)]);
    arrived(op);
}

void StepRun::arrived(std::int32_t op) {
    const Task& task = tasks_.at(op);
    const MoveTimes& times = times_[slot(op)];
    const double waited = task.receives ? ledger_.charge_split(Category::pipeline_idle, task.category, times.peer_entered, now())
                                        : ledger_.charge(task.category, now());
    if (task.between_tiers) {
        result_.moved_bytes[tier_queue(task.between_tiers->queue)] += times.sent_bytes;
    } else {
        expose(task, waited);
        result_.sent_bytes[static_cast<std::size_t>(task.account)] += times.sent_bytes;
    }
    done(op, times.entered, times.finished);
}

void StepRun::done(std::int32_t op, double begin, double end) {
    const Task& task = tasks_.at(op);
    if (task.scalar) scalars_.*task.scalar += *task.scalar_from;
    if (inputs_.trace) result_.events.push_back({task.queue, op, begin, end});
}

// All moves are done, and have told their times.
void StepRun::tell_overlap() {
    std::vector<std::vector<Interval>> under_way(tasks_.accounts());
    for (std::int32_t i = 0; i < tasks_.count(); ++i) {
        const Task& task = tasks_.at(i);
        if (task.slot < 0 || task.between_tiers) continue;
        const MoveTimes& t = times_[slot(i)];
        under_way[static_cast<std::size_t>(task.account)].push_back({std::max(t.entered, t.peer_entered), t.finished});
    }
    std::vector<Interval> all;
    for (std::size_t a = 0; a < under_way.size(); ++a) {
        under_way[a] = united(std::move(under_way[a]));
        result_.wire[a].busy = total(under_way[a]);
        all.insert(all.end(), under_way[a].begin(), under_way[a].end());
    }
    result_.beside = beside(ran_, united(std::move(all)), tasks_.likes());
}

StepResult StepRun::finish(World& world, int loss_rank) {
    finish_queue();
    ledger_.charge(Category::other, now());
    evidence_.doing(Doing::other, 0, ledger_.last());
    if (loss_rank >= 0 && tasks_.program().grid().extent(Axis::pp) > 1) {
        std::array<double, 2> told = {scalars_.loss, scalars_.tokens};
        world.broadcast(told, loss_rank);
        scalars_.loss = told[0];
        scalars_.tokens = told[1];
        ledger_.charge(Category::pipeline_idle, now());
    }
    result_.loss = scalars_.loss;
    result_.tokens = std::llround(scalars_.tokens);
    result_.residual2 = scalars_.residual2;
    if (tasks_.program().norm >= 0) {
        result_.grad_norm = std::sqrt(scalars_.norm2);
        result_.updated = std::isfinite(scalars_.norm2) && may_update(tasks_.stale(), inputs_);
        if (std::isfinite(scalars_.norm2)) result_.clip_factor = clip_factor(scalars_.norm2, tasks_.clip());
    }
    if (tasks_.accounts() > 0) tell_overlap();
    result_.memory = tasks_.memory();
    if (inputs_.trace_memory) result_.timeline = tasks_.timeline();
    ledger_.charge(Category::other, now());
    result_.time = device_.queues() ? times_behind(ledger_, queued_times_) : ledger_.times();
    result_.seconds = ledger_.seconds();
    return std::move(result_);
}

}  // namespace quadrille
