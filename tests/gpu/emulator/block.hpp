// The threads of an emulated block, as the emulated language of include/cuda_runtime.h sees them.
//
// What is seen: a thread missing at a barrier or at a call of the warp, or there at another line; a lane that reads from one that takes no part;
// writes before and behind the block's dynamic shared memory (with AddressSanitizer reads too, and those of any other memory); as wrong results,
// reads of shared memory that nobody has written (when a block begins it is full of NaNs, which are -1 as integers) and races: blocks, and threads
// between two barriers or calls of the warp, run in a random order, and no lane keeps step with its neighbours.
// What is not seen: registers, banks, coalescing, limits on registers, memory models (a missing fence), blocks that run at the same time; static
// shared memory of kernels that are templates is not refilled, since g++ does not tell where it lies: it holds what the block before has left.
#pragma once
#include "base/location.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <type_traits>

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x = 1, y = 1, z = 1;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

namespace quadrille::emulator {

// A kernel does what no kernel may do. Thrown from where the work of the stream is run: a call that waits.
struct Fault : std::logic_error {
    using std::logic_error::logic_error;
};

// What all lanes' payloads of one call of the warp become: lane[i] is lane i's, where the mask has it.
using Resolve = void (*)(unsigned mask, void* const* lane);

struct Thread {
    uint3 index{}, block{};
    dim3 threads, blocks;
    unsigned linear = 0;  // within the block; its warp is linear / 32
    // While it waits: where, and for a call of the warp with what.
    Location at = Location::current();
    unsigned mask = 0;
    void* payload = nullptr;
    Resolve resolve = nullptr;

    unsigned lane() const { return linear % 32; }
};

// The thread whose kernel is running; no CUDA thread: null.
extern thread_local constinit Thread* running;

// __syncthreads
void barrier(Location at);
// Waits until all lanes of the mask have come with the same mask and `resolve` to the same place; the last to come calls it for all.
void meet(unsigned mask, void* payload, Resolve resolve, Location at);
void* dynamic_shared_memory();

// Each lane comes with `mine` and goes with what `resolve`, a lambda without captures, has made of it: resolve(mask, T* const (&lane)[32]).
template <class T, class F>
T warp_call(unsigned mask, T mine, F, Location at) {
    static_assert(std::is_empty_v<F>);
    meet(
        mask, &mine,
        [](unsigned of, void* const* lane) {
            T* typed[32];
            for (int i = 0; i < 32; ++i) typed[i] = static_cast<T*>(lane[i]);
            F{}(of, typed);
        },
        at);
    return mine;
}

// Runs a whole grid, block after block. Throws Fault.
void run_grid(dim3 blocks, dim3 threads, std::size_t shared_bytes, const std::function<void()>& kernel);

// Random numbers of what has no order; the seed of an emulated device is 1 at first, or QUADRILLE_EMULATOR_SEED in the environment.
void seed(std::uint64_t);
std::uint64_t draw();

}  // namespace quadrille::emulator
