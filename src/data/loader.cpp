#include "data/loader.hpp"

namespace quadrille {

std::vector<std::int64_t> SequenceBlock::indices() const {
    require(dp >= 1 && dp_rank >= 0 && dp_rank < dp && micro_batch >= 1 && accumulation >= 1, "no such block of sequences");
    std::vector<std::int64_t> all;
    for (std::int64_t m = 0; m < accumulation; ++m)
        for (std::int64_t row = 0; row < micro_batch; ++row) all.push_back(m * micro_batch * dp + dp_rank * micro_batch + row);
    return all;
}

Loader::Loader(const BatchReader& reader, const SequenceBlock& block, std::int64_t first_step, std::int64_t end_step, int depth)
    : reader_(reader), indices_(block.indices()), first_(first_step), end_(end_step), ring_(static_cast<std::size_t>(depth) + 1),
      ready_(first_step), wanted_(first_step) {
    require(depth >= 1 && first_step >= 0 && end_step >= first_step, "a loader serves a range of steps");
    require(block.dp * block.micro_batch * block.accumulation == reader.global_batch(), "the blocks of all dp ranks make the batch");
    thread_ = std::thread([this] { work(); });
}

Loader::~Loader() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void Loader::read_step(std::int64_t step) {
    StepBatch& out = slot(step);
    out.step = step;
    reader_.read(step, indices_, out.batch);
}

// Reads each step as soon as its slot is free: the slot's last user, step − ring size, must lie before the one in use.
void Loader::work() {
    const auto slots = static_cast<std::int64_t>(ring_.size());
    for (std::int64_t step = first_; step < end_; ++step) {
        {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [&] { return stopping_ || step - slots < wanted_ - 1; });
            if (stopping_) return;
        }
        try {
            read_step(step);
        } catch (...) {
            // Carried to the thread that asks for the batch.
            const std::lock_guard lock(mutex_);
            failure_ = std::current_exception();
            changed_.notify_all();
            return;
        }
        const std::lock_guard lock(mutex_);
        ready_ = step + 1;
        changed_.notify_all();
    }
}

const StepBatch& Loader::next() {
    require(wanted_ < end_, "the loader has no more steps");
    std::unique_lock lock(mutex_);
    const std::int64_t step = wanted_++;  // gives back the batch that was in use
    changed_.notify_all();
    changed_.wait(lock, [&] { return ready_ > step || failure_ != nullptr; });
    if (ready_ > step) return slot(step);
    --wanted_;  // the caller has not got it: a later call fails again
    std::rethrow_exception(failure_);
}

}  // namespace quadrille
