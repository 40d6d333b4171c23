// Built where liburing is found. liburing returns -errno and leaves errno alone: nothing here reads errno.
#include "base/error.hpp"
#include "storage/block_engine.hpp"

#include <liburing.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <thread>

namespace quadrille {
namespace {

constexpr std::int64_t largest_call = std::int64_t{1} << 30;  // bytes; also the most that the kernel registers as one buffer
constexpr int most_tries = 1000;                              // a millisecond apart, for a kernel that is short of memory
constexpr int not_registered = -1;

bool passes(int error) { return error == -EINTR || error == -EAGAIN || error == -EBUSY; }

class UringEngine final : public BlockEngine {
  public:
    // `problem` is 0, or the -errno with which the kernel refuses a ring: then only the destructor may follow.
    UringEngine(int descriptor, int queue_depth, int& problem) : descriptor_(descriptor) {
        io_uring_params params{};
        params.flags = IORING_SETUP_CLAMP;
        problem = io_uring_queue_init_params(static_cast<unsigned>(queue_depth), &ring_, &params);
        made_ = problem == 0;
        depth_ = std::min(queue_depth, static_cast<int>(params.sq_entries));
    }
    ~UringEngine() override {
        if (made_) io_uring_queue_exit(&ring_);
    }
    UringEngine(const UringEngine&) = delete;
    UringEngine& operator=(const UringEngine&) = delete;

    int depth() const override { return depth_; }

    // 0 or the kernel's -errno; in pieces, since it takes at most 1 GiB as one buffer.
    int register_memory(std::span<const std::span<std::byte>> memory) {
        std::vector<iovec> pieces;
        for (std::span<std::byte> part : memory)
            while (!part.empty()) {
                const std::size_t bytes = std::min(part.size(), static_cast<std::size_t>(largest_call));
                pieces.push_back({part.data(), bytes});
                part = part.subspan(bytes);
            }
        if (pieces.empty()) return 0;
        const int problem = io_uring_register_buffers(&ring_, pieces.data(), static_cast<unsigned>(pieces.size()));
        if (problem == 0) registered_ = std::move(pieces);
        return problem;
    }

    void start(std::span<const Block> blocks) override {
        for (const Block& b : blocks) {
            io_uring_sqe* entry = io_uring_get_sqe(&ring_);
            require(entry != nullptr, "storage: more blocks are in flight than the ring holds");
            prepare(entry, b);
            entry->user_data = static_cast<std::uint64_t>(b.slot);
            untaken_.push_back(b.slot);
        }
        submit();
    }

    void collect(bool wait, std::vector<BlockEnd>& ends) override {
        const std::size_t before = ends.size();
        for (int tries = 0;; ++tries) {
            submit();
            take(ends);
            if (!wait || ends.size() > before) return;
            if (tries > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            io_uring_cqe* end = nullptr;
            const int problem = in_kernel_ > 0 ? io_uring_wait_cqe(&ring_, &end) : -EAGAIN;
            if (problem == -EINTR) tries = -1;
            else if (problem < 0 && (!passes(problem) || tries >= most_tries))
                throw Error(Exit::io_failed, fmt::format("offload: io_uring gives no answer: {}", std::strerror(-problem)));
        }
    }

  private:
    void prepare(io_uring_sqe* entry, const Block& b) const {
        const auto bytes = static_cast<unsigned>(std::min(b.bytes, largest_call));
        const auto offset = static_cast<std::uint64_t>(b.offset);
        const int buffer = registered_buffer(b.memory, bytes);
        const bool reads = b.direction == Direction::read;
        if (buffer == not_registered)
            reads ? io_uring_prep_read(entry, descriptor_, b.memory, bytes, offset)
                  : io_uring_prep_write(entry, descriptor_, b.memory, bytes, offset);
        else
            reads ? io_uring_prep_read_fixed(entry, descriptor_, b.memory, bytes, offset, buffer)
                  : io_uring_prep_write_fixed(entry, descriptor_, b.memory, bytes, offset, buffer);
    }

    int registered_buffer(const std::byte* memory, std::size_t bytes) const {
        for (std::size_t i = 0; i < registered_.size(); ++i) {
            const auto* begin = static_cast<const std::byte*>(registered_[i].iov_base);
            if (memory >= begin && memory + bytes <= begin + registered_[i].iov_len) return static_cast<int>(i);
        }
        return not_registered;
    }

    // Offers the kernel what it has not taken. It may be out of memory for now; what it will never take ends with its error.
    void submit() {
        if (untaken_.empty()) return;
        const int taken = refused_ == 0 ? io_uring_submit(&ring_) : refused_;
        if (taken >= 0) {
            in_kernel_ += taken;
            untaken_.erase(untaken_.begin(), untaken_.begin() + taken);
        } else if (!passes(taken)) {
            refused_ = taken;  // the entries stay in the ring, so it must not be offered again
            for (const int slot : untaken_) lost_.push_back({slot, taken});
            untaken_.clear();
        }
    }

    void take(std::vector<BlockEnd>& ends) {
        ends.insert(ends.end(), lost_.begin(), lost_.end());
        lost_.clear();
        unsigned head = 0, count = 0;
        io_uring_cqe* end = nullptr;
        io_uring_for_each_cqe(&ring_, head, end) {
            ends.push_back({static_cast<int>(end->user_data), end->res});
            ++count;
        }
        io_uring_cq_advance(&ring_, count);
        in_kernel_ -= static_cast<int>(count);
    }

    const int descriptor_;
    io_uring ring_{};
    bool made_ = false;
    int depth_ = 0;
    std::vector<iovec> registered_;
    std::deque<int> untaken_;    // slots of the blocks in the ring that the kernel has not taken, in order
    std::vector<BlockEnd> lost_; // ends of those it refused
    int refused_ = 0;            // with this -errno, for good
    int in_kernel_ = 0;
};

// A ring may be granted and its use forbidden, or the kernel be older than the plain read.
std::int64_t try_reading(BlockEngine& engine, std::span<std::byte> trial) {
    const Block block{Direction::read, 0, trial.data(), static_cast<std::int64_t>(trial.size()), 0};
    engine.start({&block, 1});
    std::vector<BlockEnd> ends;
    engine.collect(true, ends);
    return ends.front().result;
}

std::string registration_problem(int problem, std::span<const std::span<std::byte>> memory) {
    std::size_t bytes = 0;
    for (const auto& part : memory) bytes += part.size();
    rlimit limit{};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    const std::string allowed = limit.rlim_cur == RLIM_INFINITY ? "unlimited" : fmt::format("limited to {} bytes", limit.rlim_cur);
    return fmt::format("offload: {} bytes of memory cannot be registered with io_uring: {} (locked memory is {}); "
                       "reads and writes go unregistered, a little slower", bytes, std::strerror(-problem), allowed);
}

}  // namespace

std::unique_ptr<BlockEngine> uring_engine(int descriptor, int queue_depth, std::span<std::byte> trial,
                                          std::span<const std::span<std::byte>> memory, std::vector<std::string>& notes) {
    int problem = 0;
    auto engine = std::make_unique<UringEngine>(descriptor, queue_depth, problem);
    if (problem == 0) problem = static_cast<int>(std::min<std::int64_t>(try_reading(*engine, trial), 0));
    if (problem < 0) {
        notes.push_back(fmt::format("offload: io_uring is refused: {}; up to {} threads read and write the nvme tier with pread and pwrite",
                                    std::strerror(-problem), most_block_threads));
        return nullptr;
    }
    if (const int refusal = engine->register_memory(memory); refusal < 0) notes.push_back(registration_problem(refusal, memory));
    return engine;
}

}  // namespace quadrille
