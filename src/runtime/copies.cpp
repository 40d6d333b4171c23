#include "runtime/copies.hpp"

#include "base/error.hpp"
#include "comm/evidence.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace quadrille {
namespace {

constexpr std::int64_t piece_bytes = std::int64_t{1} << 20;
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
    finished_.notify_all();
}

std::size_t Copies::unfinished() {
    const std::lock_guard lock(mutex_);
    return done_.size();
}

CopyTicket Copies::start(const TierMove& copy, std::vector<Ticket> moves, std::vector<CopyTicket> copies, MoveTimes* times) {
    require(copy.from.end - copy.from.begin == copy.to.end - copy.to.begin, "runtime: the two ends of a copy have different lengths");
    Job job;
    job.copy = copy;
    job.moves = std::move(moves);
    job.copies = std::move(copies);
    job.times = times;
    job.record.issued = now();
    const std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
    const CopyTicket ticket = first_ + static_cast<CopyTicket>(done_.size());
    job.number = ticket;
    done_.push_back(false);
    arriving_.push_back(std::move(job));
    wake_.notify_one();
    return ticket;
}

void Copies::wait(CopyTicket ticket) {
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [&] { return over(ticket) || failure_; });
    if (!over(ticket)) std::rethrow_exception(failure_);
}

bool Copies::over(CopyTicket ticket) const { return ticket < first_ || done_[static_cast<std::size_t>(ticket - first_)]; }

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
        finished_.notify_all();
    }
}

bool Copies::advance(Lane& lane) {
    if (lane.empty()) return false;
    if (lane.front().copy.queue == Queue::disk) return advance_disk(lane);
    Job& job = lane.front();
    if (!job.begun && !may_begin(job)) return false;
    begin(job);
    copy_piece(job);
    if (job.copied == job.copy.to.end - job.copy.to.begin) {
        finish(job);
        lane.pop_front();
    }
    return true;
}

// Several transfers are under way at once, begun in order; they end in any.
bool Copies::advance_disk(Lane& lane) {
    bool moved = false;
    for (Job& job : lane) {
        if (job.begun) continue;
        if (!may_begin(job)) break;
        begin(job);
        moved = true;
    }
    arena_.file().poll();
    for (Job& job : lane) {
        if (!job.begun || *job.moved == job.copied) continue;
        job.copied = *job.moved;
        engine_.evidence().beat();
    }
    for (auto it = lane.begin(); it != lane.end() && it->begun;) {
        if (!arena_.file().done(it->transfer)) { ++it; continue; }
        it->copied = *it->moved;
        finish(*it);
        it = lane.erase(it);
        moved = true;
    }
    return moved;
}

bool Copies::may_begin(Job& job) {
    if (!std::all_of(job.moves.begin(), job.moves.end(), [this](const Ticket& t) { return engine_.done(t); })) return false;
    const std::lock_guard lock(mutex_);
    return std::all_of(job.copies.begin(), job.copies.end(), [this](CopyTicket t) { return over(t); });
}

void Copies::begin(Job& job) {
    if (job.begun) return;
    job.begun = true;
    job.record.entered = job.record.peer_entered = now();
    const ByteRange &from = job.copy.from, &to = job.copy.to;
    if (job.copy.queue != Queue::disk) return;
    job.moved = std::make_shared<std::int64_t>(0);
    const std::int64_t bytes = from.end - from.begin;
    if (to.tier == Tier::nvme) job.transfer = arena_.file().write(to.begin, arena_.data(from.tier) + from.begin, bytes, job.moved);
    else job.transfer = arena_.file().read(from.begin, arena_.data(to.tier) + to.begin, bytes, job.moved);
}

void Copies::copy_piece(Job& job) {
    const ByteRange &from = job.copy.from, &to = job.copy.to;
    const std::int64_t bytes = std::min(piece_bytes, to.end - to.begin - job.copied);
    std::memcpy(arena_.data(to.tier) + to.begin + job.copied, arena_.data(from.tier) + from.begin + job.copied, static_cast<std::size_t>(bytes));
    job.copied += bytes;
    engine_.evidence().beat();
}

void Copies::finish(Job& job) {
    job.record.finished = now();
    job.record.sent_bytes = job.copied;
    if (job.times) *job.times = job.record;
    const std::lock_guard lock(mutex_);
    done_[static_cast<std::size_t>(job.number - first_)] = true;
    while (!done_.empty() && done_.front()) {
        done_.pop_front();
        ++first_;
    }
    finished_.notify_all();
}

}  // namespace quadrille
