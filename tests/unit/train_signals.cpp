// Signals that come in the middle of arithmetic. Alone in its program, whose signals are held from here on.
#include "cpu/kernels.hpp"
#include "train/stop.hpp"

#include <csignal>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include <doctest.h>

using namespace quadrille;

TEST_CASE("a hail of signals changes no product, and no memory beside it") {
    constexpr std::int64_t m = 512, n = 384, k = 128;
    constexpr auto lasting = std::chrono::milliseconds(2500);  // less than what is one signal, repeated
    std::vector<float> a(m * k), b(k * n);
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 17) - 8;
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i % 13) - 6;
    Gemm g;
    g.m = m, g.n = n, g.k = k;
    g.a = a.data(), g.lda = k;
    g.b = b.data(), g.ldb = n, g.ldc = n;
    const auto product = [&] {
        std::vector<float> c(m * n);
        g.c = c.data();
        CpuKernels(1).gemm(g);
        return c;
    };
    hold_signals();
    handle_signals();
    const std::vector<float> due = product();
    std::atomic<bool> over = false;
    std::thread sender([&] {
        while (!over) {
            kill(getpid(), SIGUSR1);
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
    });
    const auto begin = std::chrono::steady_clock::now();
    std::int64_t wrong = 0, made = 0;
    for (; std::chrono::steady_clock::now() - begin < lasting; ++made) wrong += product() != due;
    over = true;
    sender.join();
    CHECK(made > 0);
    CHECK(wrong == 0);
}
