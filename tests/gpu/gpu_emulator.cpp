// The emulated GPU: what it runs comes out right, and what kernels and hosts may not do is told.
#include "cuda/launch.cuh"
#include "emulator/block.hpp"

#include <cstdint>
#include <doctest.h>
#include <numeric>
#include <string>
#include <vector>

using namespace quadrille;
using emulator::Fault;

namespace {

constexpr unsigned everyone = 0xffffffffu;

// y[block] = the sum of x: through the warp, then through shared memory.
__global__ void sum(const float* x, std::int64_t n, float* y) {
    __shared__ float part[32];
    float s = 0;
    for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x) s += x[i];
    for (int by = 16; by > 0; by /= 2) s += __shfl_xor_sync(everyone, s, by);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
    __syncthreads();
    if (threadIdx.x != 0) return;
    float total = 0;
    for (unsigned w = 0; w < blockDim.x / 32; ++w) total += part[w];
    y[blockIdx.x] = total;
}

// The same without the barrier.
__global__ void hasty_sum(const float* x, float* y) {
    float* const part = dynamic_shared<float>();
    part[threadIdx.x] = x[threadIdx.x];
    if (threadIdx.x != 0) return;
    float total = 0;
    for (unsigned i = 0; i < blockDim.x; ++i) total += part[i];
    *y = total;
}

__global__ void indices(uint3* thread, uint3* block) {
    const unsigned b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const unsigned t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const unsigned at = b * blockDim.x * blockDim.y * blockDim.z + t;
    thread[at] = threadIdx, block[at] = blockIdx;
}

__global__ void shuffles(int* xor_8, int* up_1, int* down_9, int* of_width_8, unsigned* odd, std::int64_t* wide) {
    const int lane = static_cast<int>(threadIdx.x);
    xor_8[lane] = __shfl_xor_sync(everyone, lane, 8);
    up_1[lane] = __shfl_up_sync(everyone, lane, 1);
    down_9[lane] = __shfl_down_sync(everyone, lane, 9);
    of_width_8[lane] = __shfl_sync(everyone, lane, 3, 8);
    odd[lane] = __ballot_sync(everyone, lane % 2 == 1);
    wide[lane] = lane < 16 ? __shfl_xor_sync(0xffffu, std::int64_t{lane} << 40, 1) : 0;
}

enum class Wrong { leaves_barrier, two_barriers, past_shared, before_shared, reads_outsider, waits_for_ended, two_masks, lacks_itself, waits_apart };
__global__ void wrong(Wrong what) {
    const unsigned t = threadIdx.x;
    char* const shared = dynamic_shared<char>();
    if (what == Wrong::leaves_barrier && t == 3) return;
    if (what == Wrong::leaves_barrier) __syncthreads();
    if (what == Wrong::two_barriers) {
        if (t == 7)
            __syncthreads();
        else
            __syncthreads();
    }
    if (what == Wrong::past_shared) shared[t + 1] = 1;
    if (what == Wrong::before_shared) shared[static_cast<int>(t) - 1] = 1;
    if (what == Wrong::reads_outsider && t < 8) __shfl_xor_sync(0xffu, 1, 8);
    if (what == Wrong::waits_for_ended && t < 8) __shfl_xor_sync(everyone, 1, 8);
    if (what == Wrong::two_masks && t < 8) __shfl_xor_sync(t < 4 ? 0xffu : 0xfeu, 1, 2);
    if (what == Wrong::lacks_itself) __syncwarp(0x0fu);
    if (what == Wrong::waits_apart) {
        if (t < 32)
            __syncwarp();
        else
            __syncthreads();
        if (t < 32) __syncwarp();
    }
}

std::string fault_of(Wrong what) {
    launch(wrong, {2, 64, 64}, nullptr, what);
    try {
        cudaStreamSynchronize(nullptr);
    } catch (const Fault& e) { return e.what(); }
    return "none";
}

__global__ void fill(int* x, int value) { x[blockIdx.x * blockDim.x + threadIdx.x] = value; }
__global__ void copy(const int* x, int* y) { y[blockIdx.x * blockDim.x + threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x]; }

}  // namespace

TEST_CASE("a sum through the warp and shared memory, from every order of threads") {
    std::vector<float> x(1000), y(5);
    std::iota(x.begin(), x.end(), 0.0f);
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        emulator::seed(seed);
        std::fill(y.begin(), y.end(), -1.0f);
        launch(sum, {5, 256}, nullptr, x.data(), 1000, y.data());
        CHECK(y[0] == -1.0f);  // nothing has run yet
        CHECK(cudaStreamSynchronize(nullptr) == cudaSuccess);
        CHECK(y == std::vector<float>(5, 499500.0f));
    }
}

TEST_CASE("a missing barrier shows") {
    std::vector<float> x(64, 1.0f);
    float y = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        emulator::seed(seed);
        launch(hasty_sum, {1, 64, 256}, nullptr, x.data(), &y);
        cudaStreamSynchronize(nullptr);
        CHECK_FALSE(y == 64.0f);
    }
}

TEST_CASE("indices of three dimensions") {
    std::vector<uint3> thread(2 * 3 * 4 * 32), block(thread.size());
    launch(indices, {dim3(2, 3, 1), dim3(4, 2, 16)}, nullptr, thread.data(), block.data());
    cudaStreamSynchronize(nullptr);
    for (unsigned i = 0; i < thread.size(); ++i) {
        CHECK(thread[i].x == i % 4);
        CHECK(thread[i].y == i / 4 % 2);
        CHECK(thread[i].z == i / 8 % 16);
        CHECK(block[i].x == i / 128 % 2);
        CHECK(block[i].y == i / 256);
    }
}

TEST_CASE("shuffles and votes") {
    std::vector<int> xor_8(32), up_1(32), down_9(32), of_width_8(32);
    std::vector<unsigned> odd(32);
    std::vector<std::int64_t> wide(32);
    launch(shuffles, {1, 32}, nullptr, xor_8.data(), up_1.data(), down_9.data(), of_width_8.data(), odd.data(), wide.data());
    cudaStreamSynchronize(nullptr);
    for (int lane = 0; lane < 32; ++lane) {
        const auto at = static_cast<std::size_t>(lane);
        CHECK(xor_8[at] == (lane ^ 8));
        CHECK(up_1[at] == (lane == 0 ? 0 : lane - 1));
        CHECK(down_9[at] == (lane + 9 < 32 ? lane + 9 : lane));
        CHECK(of_width_8[at] == lane / 8 * 8 + 3);
        CHECK(odd[at] == 0xAAAAAAAAu);
        CHECK(wide[at] == (lane < 16 ? std::int64_t{lane ^ 1} << 40 : 0));
    }
}

TEST_CASE("what kernels may not do is told") {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        emulator::seed(seed);
        const auto says = [](Wrong what, const char* words) {
            const std::string fault = fault_of(what);
            CAPTURE(fault);
            CHECK(fault.find(words) != std::string::npos);
        };
        says(Wrong::leaves_barrier, "ended");
        says(Wrong::two_barriers, "at that of");
        if (!QUADRILLE_SANITIZED) {  // AddressSanitizer would end the process
            says(Wrong::past_shared, "at byte 64 of dynamic shared memory, of which the launch gave 64");
            says(Wrong::before_shared, "before the begin of dynamic shared memory");
        }
        says(Wrong::reads_outsider, "reads from lane");
        says(Wrong::waits_for_ended, "ended");
        says(Wrong::two_masks, "with the mask");
        says(Wrong::lacks_itself, "which lacks it");
        says(Wrong::waits_apart, "ended");
    }
    float x = 2, y = 0;  // and the device goes on
    launch(sum, {1, 32}, nullptr, &x, 1, &y);
    cudaStreamSynchronize(nullptr);
    CHECK(y == 2.0f);
}

TEST_CASE("launches beyond the device's limits are refused, with who launched; no blocks are no work") {
    float x = 0;
    CHECK_THROWS_WITH_AS(launch(sum, {1, 2048}, nullptr, &x, 1, &x), doctest::Contains("gpu_emulator.cpp"), Error);
    CHECK_THROWS_WITH_AS(launch(sum, {1, 32, 300000}, nullptr, &x, 1, &x), doctest::Contains("300000 bytes of shared memory"), Error);
    launch(sum, {1, 32, 200000}, nullptr, &x, 1, &x);
    launch(sum, {0, 32}, nullptr, &x, 1, nullptr);
    CHECK(cudaStreamSynchronize(nullptr) == cudaSuccess);
}

TEST_CASE("streams keep their own order and wait for events alone: a missing wait shows") {
    int *x = nullptr, *y = nullptr;
    REQUIRE(cudaMalloc(&x, 256) == cudaSuccess);
    REQUIRE(cudaMalloc(&y, 256) == cudaSuccess);
    CHECK(x[63] == -1);
    cudaStream_t a, b;
    cudaEvent_t filled;
    cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking), cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
    cudaEventCreate(&filled);
    int early = 0;
    for (const bool waits : {true, false})
        for (std::uint64_t seed = 1; seed <= 20; ++seed) {
            emulator::seed(seed);
            launch(fill, {2, 32}, a, x, 0);
            launch(fill, {2, 32}, a, x, 7);
            cudaEventRecord(filled, a);
            if (waits) cudaStreamWaitEvent(b, filled);
            launch(copy, {2, 32}, b, x, y);
            cudaStreamSynchronize(b);
            if (waits)
                CHECK(y[40] == 7);
            else
                early += y[40] != 7;
            cudaDeviceSynchronize();
            CHECK(x[40] == 7);
        }
    CHECK(early > 0);
    CHECK(early < 20);
    cudaEventDestroy(filled);
    cudaStreamDestroy(a), cudaStreamDestroy(b);
    cudaFree(x), cudaFree(y);
}

TEST_CASE("events: asked for, timed, waited for; a wait without end is told") {
    cudaStream_t s;
    cudaEvent_t begin, end;
    cudaStreamCreate(&s);
    cudaEventCreate(&begin), cudaEventCreate(&end);
    std::vector<int> x(64);
    cudaEventRecord(begin, s);
    launch(fill, {2, 32}, s, x.data(), 3);
    cudaEventRecord(end, s);
    float ms = -1;
    CHECK(cudaEventElapsedTime(&ms, begin, end) == cudaErrorNotReady);
    int asked = 0;
    while (cudaEventQuery(end) == cudaErrorNotReady) ++asked;
    CHECK(asked < 100);
    CHECK(x[63] == 3);
    CHECK(cudaEventElapsedTime(&ms, begin, end) == cudaSuccess);
    CHECK(ms >= 0);
    cudaEventDestroy(begin), cudaEventDestroy(end), cudaStreamDestroy(s);
    CHECK(cudaStreamSynchronize(s) == cudaErrorInvalidResourceHandle);
}

TEST_CASE("memory is counted, and what is not there is not given") {
    std::size_t before = 0, after = 0, total = 0;
    cudaMemGetInfo(&before, &total);
    void* p = nullptr;
    CHECK(cudaMalloc(&p, 1000) == cudaSuccess);
    CHECK(reinterpret_cast<std::uintptr_t>(p) % 256 == 0);
    cudaMemGetInfo(&after, &total);
    CHECK(before - after == 1000);
    CHECK(cudaFree(p) == cudaSuccess);
    CHECK(cudaFree(&p) == cudaErrorInvalidValue);
    CHECK(cudaMalloc(&p, total + 1) == cudaErrorMemoryAllocation);
    CHECK_THROWS_WITH_AS(cuda_check(cudaMalloc(&p, total + 1), "a test"), "CUDA: a test: cudaErrorMemoryAllocation: as emulated", Error);
    CHECK(cudaGetLastError() == cudaSuccess);
}
