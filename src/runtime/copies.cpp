#include "runtime/copies.hpp"

#include "base/error.hpp"
#include "comm/evidence.hpp"

#include <algorithm>
#include <chrono>

namespace quadrille {
namespace {

constexpr std::chrono::microseconds nap{50};  // while only others can make progress

}  // namespace

Copies::Copies(Arena& arena, Engine& engine) : arena_(arena), engine_(engine), thread_([this] { serve(); }) {}

Copies::~Copies() { end_thread(); }

// What the thread is about is a piece of a copy or a look at the file: it does not wait for anybody.
void Copies::end_thread() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    wake_.notify_one();
    if (thread_.joinable()) thread_.join();
}

void Copies::fail(std::exception_ptr why) {
    end_thread();
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(why);
    told_.notify_all();
}

std::size_t Copies::unfinished() {
    const std::lock_guard lock(mutex_);
    return states_.size();
}

CopyTicket Copies::start(const TierMove& copy, std::vector<Ticket> moves, std::vector<CopyTicket> copies, MoveTimes* times) {
    require(copy.from.end - copy.from.begin == copy.to.end - copy.to.begin, "runtime: the two ends of a copy have different lengths");
    Job job;
    job.copy = copy;
    job.moves = std::move(moves);
    job.copies = std::move(copies);
    job.times = times;
    job.record.issued = now();
    job.after = arena_.device().mark();
    const std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
    const CopyTicket ticket = first_ + static_cast<CopyTicket>(states_.size());
    job.number = ticket;
    states_.emplace_back();
    arriving_.push_back(std::move(job));
    wake_.notify_one();
    return ticket;
}

void Copies::wait(CopyTicket ticket) {
    std::unique_lock lock(mutex_);
    told_.wait(lock, [&] { return over(ticket) || failure_; });
    if (!over(ticket)) std::rethrow_exception(failure_);
}

// A device without queues computes when it is asked to, so there the copy must be over.
void Copies::compute_after(CopyTicket ticket) {
    if (!arena_.device().queues()) return wait(ticket);
    Mark end;
    {
        std::unique_lock lock(mutex_);
        told_.wait(lock, [&] { return over(ticket) || state(ticket).begun || failure_; });
        if (over(ticket)) return;
        if (!state(ticket).begun) std::rethrow_exception(failure_);
        end = state(ticket).end;
    }
    if (!end) return wait(ticket);  // of the file
    arena_.device().compute_after(end);
}

void Copies::serve() {
    try {
        for (;;) {
            const bool idle = std::all_of(lanes_.begin(), lanes_.end(), [](const Lane& l) { return l.empty(); });
            {
                std::unique_lock lock(mutex_);
                if (idle) wake_.wait(lock, [this] { return stopping_ || !arriving_.empty(); });
                if (stopping_) return;
                for (Job& job : arriving_) lanes_[tier_queue(job.copy.queue)].push_back(std::move(job));
                arriving_.clear();
            }
            bool moved = false;
            for (Lane& lane : lanes_) moved = advance(lane) || moved;
            if (!moved) std::this_thread::sleep_for(nap);
        }
    } catch (...) {
        const std::lock_guard lock(mutex_);
        failure_ = std::current_exception();
        told_.notify_all();
    }
}

// The file, and a device with queues, have several under way at once; of the file's they end in any order. One that still waits lets later ones pass,
// which do not come after it, but for the file's.
bool Copies::advance(Lane& lane) {
    if (lane.empty()) return false;
    const bool disk = lane.front().copy.queue == Queue::disk, several = disk || arena_.device().queues();
    bool moved = false;
    for (Job& job : lane) {
        if (!job.begun && !may_begin(job)) {
            if (disk) break;
            continue;
        }
        if (!job.begun) begin(job), moved = true;
        if (!several) break;
    }
    if (disk) arena_.file().poll();
    for (auto it = lane.begin(); it != lane.end();) {
        if (it->begun) moved = look(*it) || moved;
        if (!it->begun || !all_moved(*it)) { ++it; continue; }
        finish(*it);
        it = lane.erase(it);
        moved = true;
    }
    return moved;
}

bool Copies::all_moved(const Job& job) const {
    return job.on_device ? job.copied == job.copy.to.end - job.copy.to.begin : arena_.file().done(job.transfer);
}

bool Copies::may_begin(Job& job) {
    if (job.copy.queue == Queue::disk && job.after && !job.after->reached()) return false;  // the device's own queues wait by themselves
    if (!std::all_of(job.moves.begin(), job.moves.end(), [this](const Ticket& t) { return engine_.done(t); })) return false;
    const std::lock_guard lock(mutex_);
    return std::all_of(job.copies.begin(), job.copies.end(), [this](CopyTicket t) { return over(t); });
}

void Copies::begin(Job& job) {
    job.begun = true;
    job.record.entered = job.record.peer_entered = now();
    const ByteRange &from = job.copy.from, &to = job.copy.to;
    const std::int64_t bytes = from.end - from.begin;
    if (job.copy.queue != Queue::disk) {
        const CopyQueue queue = job.copy.queue == Queue::copy_in ? CopyQueue::in : CopyQueue::out;
        job.on_device = arena_.device().copy(queue, arena_.data(to.tier) + to.begin, arena_.data(from.tier) + from.begin, bytes, job.after);
    } else {
        job.moved = std::make_shared<std::int64_t>(0);
        if (to.tier == Tier::nvme) job.transfer = arena_.file().write(to.begin, arena_.data(from.tier) + from.begin, bytes, job.moved);
        else job.transfer = arena_.file().read(from.begin, arena_.data(to.tier) + to.begin, bytes, job.moved);
    }
    const std::lock_guard lock(mutex_);
    State& told = state(job.number);
    told.begun = true;
    if (job.on_device) told.end = job.on_device->end();
    told_.notify_all();
}

// Whether it has come further.
bool Copies::look(Job& job) {
    const std::int64_t copied = job.on_device ? job.on_device->advance() : *job.moved;
    if (copied == job.copied) return false;
    job.copied = copied;
    engine_.evidence().beat();
    return true;
}

void Copies::finish(Job& job) {
    const Mark begin = job.on_device ? job.on_device->begin() : nullptr, end = job.on_device ? job.on_device->end() : nullptr;
    if (begin) job.record.entered = job.record.peer_entered = begin->seconds();
    job.record.finished = end ? end->seconds() : now();
    job.record.sent_bytes = job.copied;
    if (job.times) *job.times = job.record;
    const std::lock_guard lock(mutex_);
    state(job.number).over = true;
    state(job.number).end = nullptr;
    while (!states_.empty() && states_.front().over) {
        states_.pop_front();
        ++first_;
    }
    told_.notify_all();
}

}  // namespace quadrille
