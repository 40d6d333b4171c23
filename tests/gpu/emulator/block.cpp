// The threads of a block as fibers: each runs until it waits or ends, then one of those that can go on, drawn at random.
#include "emulator/block.hpp"
#include "base/random.hpp"
#include "emulator/fiber.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fmt/format.h>
#include <memory>
#include <numeric>
#include <vector>

// The static shared memory of kernels that are no templates (include/cuda_runtime.h): the linker gives its bounds where there is any.
extern "C" {
extern std::byte __start_emulated_shared[] __attribute__((weak));
extern std::byte __stop_emulated_shared[] __attribute__((weak));
void __asan_poison_memory_region(const volatile void* begin, std::size_t size) __attribute__((weak));
void __asan_unpoison_memory_region(const volatile void* begin, std::size_t size) __attribute__((weak));
}

namespace quadrille::emulator {

thread_local constinit Thread* running = nullptr;

namespace {

constexpr std::size_t margin = 4096, shared_alignment = 128;
constexpr auto garbage = std::byte{0xFF}, guard = std::byte{0xA5};  // a NaN of every type, -1

std::uint64_t random_key_of_start() {
    const char* const wanted = std::getenv("QUADRILLE_EMULATOR_SEED");
    return wanted ? std::strtoull(wanted, nullptr, 10) : 1;
}
std::uint64_t key = random_key_of_start(), drawn = 0;

enum class State { ready, at_barrier, in_warp_call, ended };

std::string place(const Location& at) { return fmt::format("{}:{}", at.file_name(), at.line()); }
std::string name(const Thread& t) {
    return fmt::format("thread ({}, {}, {}) of block ({}, {}, {})", t.index.x, t.index.y, t.index.z, t.block.x, t.block.y, t.block.z);
}

// Lanes of a warp, as masks.
struct Warp {
    unsigned in_call = 0;  // they wait in a call of it
    unsigned ended = 0;    // or never were
};

// One block at a time; the fibers serve block after block.
class Block {
  public:
    void run(uint3 index, dim3 blocks, dim3 threads, std::size_t shared_bytes, const std::function<void()>& kernel);
    void barrier(Thread&, Location);
    void meet(Thread&, unsigned mask, void* payload, Resolve, Location);
    void* shared() { return shared_begin_; }

  private:
    void live();
    void make_fibers(std::size_t count);
    void lay_out_shared(std::size_t bytes);
    void check_shared() const;
    void wait(Thread&, State);
    void wake(unsigned thread);
    void go_on(Fiber& from);
    void end(Thread&);
    std::string standstill() const;

    const std::function<void()>* kernel_ = nullptr;
    std::vector<Thread> threads_;
    std::vector<State> states_;
    std::vector<unsigned> ready_;
    std::vector<std::unique_ptr<Fiber>> fibers_;
    std::vector<Warp> warps_;
    unsigned at_barrier_ = 0, ended_ = 0;
    Fiber outside_;
    std::exception_ptr failure_;
    std::vector<std::byte> memory_;
    std::byte* shared_begin_ = nullptr;
    std::size_t shared_bytes_ = 0;
};

thread_local Block* current_block = nullptr;

// What each fiber does with each block.
void Block::live() {
    Thread& me = *running;
    try {
        (*kernel_)();
        end(me);
    } catch (...) {
        failure_ = std::current_exception();
        ready_.clear();
    }
    go_on(*fibers_[me.linear]);
}

void Block::make_fibers(std::size_t count) {
    while (fibers_.size() < count) fibers_.push_back(std::make_unique<Fiber>([this] { live(); }));
}

void Block::lay_out_shared(std::size_t bytes) {
    if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(memory_.data(), memory_.size());
    memory_.resize(std::max(memory_.size(), 2 * margin + shared_alignment + bytes));
    std::byte* const first = memory_.data() + margin;
    shared_begin_ = first + (shared_alignment - reinterpret_cast<std::uintptr_t>(first) % shared_alignment) % shared_alignment;
    shared_bytes_ = bytes;
    std::memset(memory_.data(), static_cast<int>(guard), static_cast<std::size_t>(shared_begin_ - memory_.data()));
    std::memset(shared_begin_, static_cast<int>(garbage), bytes);
    std::memset(shared_begin_ + bytes, static_cast<int>(guard), margin);
    if (__start_emulated_shared)
        std::memset(__start_emulated_shared, static_cast<int>(garbage), static_cast<std::size_t>(__stop_emulated_shared - __start_emulated_shared));
    if (!__asan_poison_memory_region) return;
    __asan_poison_memory_region(memory_.data(), static_cast<std::size_t>(shared_begin_ - memory_.data()));
    __asan_poison_memory_region(shared_begin_ + bytes, margin);
}

void Block::check_shared() const {
    if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(memory_.data(), memory_.size());
    const std::byte *const begin = memory_.data(), *const end = shared_begin_ + shared_bytes_;
    const auto touched = [](std::byte b) { return b != guard; };
    if (const std::byte* const p = std::find_if(end, end + margin, touched); p != end + margin)
        throw Fault(fmt::format("a kernel has written at byte {} of dynamic shared memory, of which the launch gave {}",
                                shared_bytes_ + static_cast<std::size_t>(p - end), shared_bytes_));
    if (std::any_of(begin, static_cast<const std::byte*>(shared_begin_), touched))
        throw Fault("a kernel has written before the begin of dynamic shared memory");
}

void Block::run(uint3 index, dim3 blocks, dim3 threads, std::size_t shared_bytes, const std::function<void()>& kernel) {
    const unsigned count = threads.x * threads.y * threads.z;
    kernel_ = &kernel;
    make_fibers(count);
    lay_out_shared(shared_bytes);
    threads_.assign(count, {});
    for (unsigned i = 0; i < count; ++i) {
        Thread& t = threads_[i];
        t.index = {i % threads.x, i / threads.x % threads.y, i / threads.x / threads.y};
        t.block = index, t.threads = threads, t.blocks = blocks, t.linear = i;
    }
    states_.assign(count, State::ready);
    ready_.resize(count);
    std::iota(ready_.begin(), ready_.end(), 0u);
    warps_.assign((count + 31) / 32, {});
    if (count % 32 != 0) warps_.back().ended = ~0u << count % 32;
    at_barrier_ = ended_ = 0;
    failure_ = nullptr;
    current_block = this;
    go_on(outside_);
    current_block = nullptr;
    running = nullptr;
    if (ended_ == count && !failure_) return check_shared();
    for (unsigned i = 0; i < count; ++i) fibers_[i]->forget();
    if (failure_) std::rethrow_exception(failure_);
    throw Fault(standstill());
}

// Control goes to a thread that can go on, or outside where there is none.
void Block::go_on(Fiber& from) {
    if (ready_.empty()) return from.switch_to(outside_);
    std::swap(ready_[draw() % ready_.size()], ready_.back());
    running = &threads_[ready_.back()];
    Fiber& next = *fibers_[ready_.back()];
    ready_.pop_back();
    if (&next != &from) from.switch_to(next);
}

void Block::wait(Thread& me, State state) {
    states_[me.linear] = state;
    go_on(*fibers_[me.linear]);
}

void Block::wake(unsigned thread) {
    states_[thread] = State::ready;
    ready_.push_back(thread);
}

void Block::barrier(Thread& me, Location at) {
    me.at = at;
    if (ended_ > 0) throw Fault(fmt::format("{} waits at the barrier of {}, where {} threads of the block have ended", name(me), place(at), ended_));
    if (++at_barrier_ < threads_.size()) return wait(me, State::at_barrier);
    at_barrier_ = 0;
    for (const Thread& t : threads_)
        if (t.at.line() != at.line() || std::strcmp(t.at.file_name(), at.file_name()) != 0)
            throw Fault(fmt::format("{} waits at the barrier of {}, {} at that of {}", name(me), place(at), name(t), place(t.at)));
    for (const Thread& t : threads_)
        if (t.linear != me.linear) wake(t.linear);
}

void Block::meet(Thread& me, unsigned mask, void* payload, Resolve resolve, Location at) {
    me.at = at, me.mask = mask, me.payload = payload, me.resolve = resolve;
    const unsigned warp = me.linear / 32, first = warp * 32;
    if ((mask >> me.lane() & 1u) == 0)
        throw Fault(fmt::format("{} calls its warp at {} with the mask {:#x}, which lacks it", name(me), place(at), mask));
    Warp& w = warps_[warp];
    if (const unsigned gone = mask & w.ended; gone != 0)
        throw Fault(fmt::format("{} waits at {} for lane {} of its warp, which has ended", name(me), place(at), std::countr_zero(gone)));
    if (const unsigned waiting = mask & w.in_call; waiting != 0) {
        const Thread& other = threads_[first + static_cast<unsigned>(std::countr_zero(waiting))];
        if (other.mask != mask || other.resolve != resolve || other.at.line() != at.line())
            throw Fault(fmt::format("{} calls its warp at {} with the mask {:#x}, while lane {} waits in the call of {} with the mask {:#x}",
                                    name(me), place(at), mask, other.lane(), place(other.at), other.mask));
    }
    w.in_call |= 1u << me.lane();
    if ((w.in_call & mask) != mask) return wait(me, State::in_warp_call);
    w.in_call &= ~mask;
    void* lanes[32] = {};
    for (unsigned lane = 0; lane < 32; ++lane) {
        if ((mask >> lane & 1u) == 0) continue;
        lanes[lane] = threads_[first + lane].payload;
        if (lane != me.lane()) wake(first + lane);
    }
    resolve(mask, lanes);
}

void Block::end(Thread& me) {
    states_[me.linear] = State::ended;
    warps_[me.linear / 32].ended |= 1u << me.lane();
    ++ended_;
}

// Why no thread can go on though not all have ended.
std::string Block::standstill() const {
    std::string where;
    std::size_t waiting = 0;
    for (const Thread& t : threads_) {
        if (states_[t.linear] == State::ended) continue;
        if (waiting++ == 0)
            where = fmt::format("{} waits {} of {}", name(t), states_[t.linear] == State::at_barrier ? "at the barrier" : "in the call of its warp",
                                place(t.at));
    }
    return fmt::format("{}, as {} of the block's {} threads do there or elsewhere; {} have ended: nobody can go on", where, waiting, threads_.size(),
                       ended_);
}

}  // namespace

void barrier(Location at) { current_block->barrier(*running, at); }
void meet(unsigned mask, void* payload, Resolve resolve, Location at) { current_block->meet(*running, mask, payload, resolve, at); }
void* dynamic_shared_memory() { return current_block->shared(); }

void seed(std::uint64_t s) { key = s, drawn = 0; }
std::uint64_t draw() { return random_bits(key, drawn++); }

void run_grid(dim3 blocks, dim3 threads, std::size_t shared_bytes, const std::function<void()>& kernel) {
    thread_local Block block;
    const std::uint64_t count = std::uint64_t{blocks.x} * blocks.y * blocks.z;
    // i·step + first runs through all blocks where step and count have no common factor.
    std::uint64_t step = draw() % count + 1;
    while (std::gcd(step, count) != 1) ++step;
    const std::uint64_t first = draw() % count;
    for (std::uint64_t i = 0; i < count; ++i) {
        const std::uint64_t at = (i * step + first) % count;
        const auto x = static_cast<unsigned>(at % blocks.x), y = static_cast<unsigned>(at / blocks.x % blocks.y);
        block.run({x, y, static_cast<unsigned>(at / blocks.x / blocks.y)}, blocks, threads, shared_bytes, kernel);
    }
}

}  // namespace quadrille::emulator
