#include "base/error.hpp"
#include "storage/block_engine.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

namespace quadrille {
namespace {

constexpr std::int64_t largest_call = std::int64_t{1} << 30;  // bytes; the system moves less than 2 GiB at once

class ThreadEngine final : public BlockEngine {
  public:
    ThreadEngine(int descriptor, int queue_depth) : descriptor_(descriptor), depth_(queue_depth) {
        const int wanted = std::min(queue_depth, most_block_threads);
        threads_.reserve(static_cast<std::size_t>(wanted));
        try {
            while (static_cast<int>(threads_.size()) < wanted) threads_.emplace_back([this] { serve(); });
        } catch (const std::system_error& e) {  // fewer threads are slower, nothing else
            if (threads_.empty()) throw Error(Exit::io_failed, fmt::format("offload: no thread can be started to read and write: {}", e.what()));
        }
    }
    ~ThreadEngine() override {
        {
            const std::lock_guard lock(mutex_);
            stopping_ = true;
        }
        work_.notify_all();
        for (std::thread& t : threads_) t.join();
    }
    ThreadEngine(const ThreadEngine&) = delete;
    ThreadEngine& operator=(const ThreadEngine&) = delete;

    int depth() const override { return depth_; }

    void start(std::span<const Block> blocks) override {
        {
            const std::lock_guard lock(mutex_);
            waiting_.insert(waiting_.end(), blocks.begin(), blocks.end());
        }
        for (std::size_t i = 0; i < std::min(blocks.size(), threads_.size()); ++i) work_.notify_one();
    }

    void collect(bool wait, std::vector<BlockEnd>& ends) override {
        std::unique_lock lock(mutex_);
        if (wait) ended_.wait(lock, [this] { return !ends_.empty(); });
        ends.insert(ends.end(), ends_.begin(), ends_.end());
        ends_.clear();
    }

  private:
    void serve() {
        std::unique_lock lock(mutex_);
        while (true) {
            work_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
            if (waiting_.empty()) return;
            const Block block = waiting_.front();
            waiting_.pop_front();
            lock.unlock();
            const BlockEnd end{block.slot, move(block)};
            lock.lock();
            ends_.push_back(end);
            ended_.notify_one();
        }
    }

    std::int64_t move(const Block& b) const {
        const auto bytes = static_cast<std::size_t>(std::min(b.bytes, largest_call));
        const ssize_t moved = b.direction == Direction::read ? pread(descriptor_, b.memory, bytes, b.offset)
                                                             : pwrite(descriptor_, b.memory, bytes, b.offset);
        return moved < 0 ? -errno : moved;
    }

    const int descriptor_, depth_;
    std::mutex mutex_;
    std::condition_variable work_, ended_;
    std::deque<Block> waiting_;
    std::vector<BlockEnd> ends_;
    bool stopping_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<BlockEngine> thread_engine(int descriptor, int queue_depth) {
    return std::make_unique<ThreadEngine>(descriptor, queue_depth);
}

}  // namespace quadrille
