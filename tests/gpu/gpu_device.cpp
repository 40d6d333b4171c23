// The device on the emulated GPU, whose streams run in any order that marks allow: what comes after what, and who waits for whom.
#include "base/error.hpp"
#include "cuda/device.hpp"

#include <doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <thread>
#include <vector>

using namespace quadrille;

namespace {

constexpr std::int64_t count = 5000, bytes = count * 4;

std::byte* as_bytes(float* p) { return reinterpret_cast<std::byte*>(p); }

// A device with room for two arrays, and one of the host for each.
struct Memory {
    explicit Memory(CudaDevice& d) : device(d), memory(d.reserve(2 * bytes, "a test")), host(2 * count) {
        device.attach({reinterpret_cast<std::byte*>(host.data()), static_cast<std::size_t>(2 * bytes)});
    }
    ~Memory() { device.detach(); }
    CudaDevice& device;
    std::byte* memory;
    std::vector<float> host;
};

void finish(DeviceCopy& copy) {
    while (copy.advance() < bytes) {}
}

}  // namespace

TEST_CASE("memory is zero, is written and read, and refused with what it was for") {
    CudaDevice device(0);
    CHECK(device.name() == "emulated GPU");
    CHECK(device.queues());
    std::byte* const memory = device.reserve(bytes, "rank 3: memory for a test");
    std::vector<float> x(count, 1.0f);
    device.read(x.data(), memory, bytes);
    CHECK(x == std::vector<float>(count, 0.0f));
    std::iota(x.begin(), x.end(), 0.0f);
    std::vector<float> y(count);
    device.write(memory, x.data(), bytes);
    device.read(y.data(), memory, bytes);
    CHECK(y == x);
    device.poison(memory, 8);
    device.read(y.data(), memory, bytes);
    CHECK(std::isnan(y[1]));
    CHECK(y[2] == 2.0f);
    CudaDevice other(0);
    CHECK_THROWS_WITH_AS(other.reserve(std::int64_t{1} << 50, "rank 3: memory for a test"),
                         "rank 3: memory for a test cannot be had: cudaErrorMemoryAllocation: as emulated", Error);
}

TEST_CASE("lists are what they were, for kernels") {
    CudaDevice device(0);
    const std::vector<std::int64_t> list = {5, 7, -1};
    const std::int64_t* const there = device.list(list);
    std::vector<std::int64_t> back(3);
    device.read(back.data(), reinterpret_cast<const std::byte*>(there), 24);
    CHECK(back == list);
    CHECK(device.list({}) == nullptr);
}

// Each round: host to device, doubled there, back to the host; and the arrays change places, so that each is written again while the round
// before may still be under way, but for the marks.
TEST_CASE("copies in, kernels and copies out, ordered by marks alone") {
    for (int repeat = 0; repeat < 50; ++repeat) {
        CudaDevice device(0);
        Memory m(device);
        std::byte* const memory = m.memory;
        float *in = m.host.data(), *out = in + count;
        std::fill_n(in, count, 1.0f);
        std::unique_ptr<DeviceCopy> to, from;
        for (int round = 0; round < 6; ++round) {
            // The copy in comes after the kernel that read this memory last, which the mark is behind; the host array it reads was written by `from`.
            if (from) finish(*from);
            to = device.copy(CopyQueue::in, memory, as_bytes(in), bytes, device.mark());
            device.compute_after(to->end());
            device.kernels().scale(memory, 2.0, memory + bytes, count, DType::f32);
            from = device.copy(CopyQueue::out, as_bytes(out), memory + bytes, bytes, device.mark());
            device.compute_after(from->end());
            device.poison(memory + bytes, bytes);  // must not come before it is copied
            std::swap(in, out);
        }
        finish(*from);
        CHECK(std::all_of(in, in + count, [](float x) { return x == 64.0f; }));
    }
}

TEST_CASE("marks are reached in order, and tell when") {
    CudaDevice device(0);
    Memory m(device);
    const auto now = [] { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); };
    const double before = now();
    device.settle();
    std::vector<Mark> marks;
    for (int i = 0; i < 20; ++i) {
        marks.push_back(device.mark());
        device.kernels().zero(m.memory, bytes);
    }
    const auto copy = device.copy(CopyQueue::out, as_bytes(m.host.data()), m.memory, bytes, marks.back());
    finish(*copy);
    CHECK(marks.back()->reached());
    double last = before;
    for (const Mark& mark : marks) {
        CHECK(mark->reached());
        CHECK(mark->seconds() >= last - 1e-6);
        last = mark->seconds();
    }
    CHECK(copy->begin()->seconds() >= last - 1e-6);
    CHECK(copy->end()->seconds() >= copy->begin()->seconds());
    CHECK(copy->end()->seconds() <= now() + 1e-3);
    marks.back()->wait();
}

// Else a rank's thread of copies takes memory of GPU 0, whichever is the rank's.
TEST_CASE("a thread that asks for marks takes the device first") {
    CudaDevice device(0);
    const Mark mark = device.mark();
    const auto takes_it = [](const auto& ask) {
        bool taken = false;
        std::thread([&] {
            ask();
            taken = emulator::this_thread_has_set_its_device();
        }).join();
        return taken;
    };
    CHECK_FALSE(takes_it([] {}));
    CHECK(takes_it([&] { mark->reached(); }));
    CHECK(takes_it([&] { mark->wait(); }));
    CHECK(takes_it([&] { mark->seconds(); }));
}
