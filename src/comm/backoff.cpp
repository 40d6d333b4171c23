#include "comm/backoff.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>
#ifdef __linux__
#include <sys/prctl.h>
#endif

namespace quadrille {
namespace {

// Looks, not seconds: a look takes about half a microsecond.
constexpr int spins = 100, shared_yields = 200, background_yields = 1;
constexpr int first_sleep_us = 20, longest_sleep_us = 200, sleeps_each = 4;  // each length so often, then the double

void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

}  // namespace

void Backoff::idle() {
    ++idle_;
    if (core_ == Core::own) {
        if (idle_ < spins)
            pause();
        else
            sched_yield();
        return;
    }
    const int yields = core_ == Core::shared ? shared_yields : background_yields;
    if (idle_ <= yields) {
        sched_yield();
        return;
    }
    const int doublings = std::min((idle_ - yields - 1) / sleeps_each, 8);
    idle_ = std::min(idle_, yields + 1 + 8 * sleeps_each);
    std::this_thread::sleep_for(std::chrono::microseconds(std::min(first_sleep_us << doublings, longest_sleep_us)));
}

void allow_short_sleeps() {
#ifdef __linux__
    prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);  // nanoseconds; a refusal costs only time
#endif
}

}  // namespace quadrille
