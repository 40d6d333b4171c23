#include "train/stop.hpp"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <thread>

#include <unistd.h>

namespace quadrille {
namespace {

constexpr int stop_signals[] = {SIGTERM, SIGUSR1};
constexpr double same_signal_seconds = 5;

std::atomic<int> noted_signal{0};  // the first, for training

sigset_t stop_set() {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : stop_signals) sigaddset(&set, signal);
    return set;
}

void mask_signals(int how) {
    const sigset_t set = stop_set();
    pthread_sigmask(how, &set, nullptr);
}

[[noreturn]] void take_signals() {
    const sigset_t set = stop_set();
    double first = 0;
    for (int signal = 0;;) {
        if (sigwait(&set, &signal) != 0) continue;
        if (noted_signal.load() == 0) first = now(), noted_signal.store(signal);
        else if (now() - first > same_signal_seconds) _exit(128 + signal);
    }
}

// A reason as one number, of which the largest counts: a signal before a limit, then the lowest rank. 0: none.
constexpr std::int64_t ranks_end = std::int64_t{1} << 31;
std::int64_t packed(const StopReason& r) {
    return ((static_cast<std::int64_t>(r.kind) + 1) * 256 + r.signal) * ranks_end + (ranks_end - 1 - r.rank);
}
StopReason unpacked(std::int64_t number) {
    const std::int64_t what = number / ranks_end;
    return {static_cast<StopReason::Kind>(what / 256 - 1), static_cast<int>(ranks_end - 1 - number % ranks_end), static_cast<int>(what % 256)};
}

constexpr double never = std::numeric_limits<double>::infinity();

}  // namespace

void hold_signals() { mask_signals(SIG_BLOCK); }

void handle_signals() { std::thread(take_signals).detach(); }

void release_signals() { mask_signals(SIG_UNBLOCK); }

std::string text(const StopReason& r, double time_limit) {
    switch (r.kind) {
        case StopReason::Kind::time_limit: return fmt::format("train.time_limit {} s", time_limit);
        case StopReason::Kind::slurm_end: return fmt::format("the end of the Slurm job (SLURM_JOB_END_TIME of rank {})", r.rank);
        case StopReason::Kind::signal: break;
    }
    return fmt::format("{}, which rank {} got", r.signal == SIGUSR1 ? "SIGUSR1" : "SIGTERM", r.rank);
}

std::optional<double> seconds_of_job() {
    const char* end = std::getenv("SLURM_JOB_END_TIME");
    if (!end || !*end) return {};
    char* rest = nullptr;
    const long long seconds = std::strtoll(end, &rest, 10);
    if (*rest != '\0') return {};
    timespec t{};
    clock_gettime(CLOCK_REALTIME, &t);
    const double left = static_cast<double>(seconds) - (static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec));
    return left > 0 ? std::optional(left) : std::nullopt;  // the end of a job that is over is not this one's
}

double seconds_left(double begun, double time_limit) {
    const double of_job = seconds_of_job().value_or(never);
    return std::min(of_job, time_limit > 0 ? begun + time_limit - now() : never);
}

Error no_time(double time_limit, double left, double needed) {
    const std::string limit = time_limit > 0 ? fmt::format("train.time_limit is {} s", time_limit) : "the Slurm job has its time";
    return {Exit::refused, fmt::format("{}, of which {:.1f} s are left before the first step, and {:.1f} s are needed to stop and save: not one step "
                                       "fits; allowed: more time", limit, std::max(0.0, left), needed)};
}

Stop::Stop(const World& world, double begun, double time_limit)
    : ballot_(world), rank_(world.rank()), time_limit_at_(time_limit > 0 ? begun + time_limit : never), slurm_end_at_(never) {
    // Once: from here on the steady clock counts, which nobody sets.
    if (const auto left = seconds_of_job()) slurm_end_at_ = now() + *left;
}

double Stop::seconds_left() const { return std::min(slurm_end_at_, time_limit_at_) - now(); }

std::int64_t Stop::wish(double needed) const {
    if (reason_) return packed(*reason_);
    if (const int signal = noted_signal.load(); signal != 0) return packed({StopReason::Kind::signal, rank_, signal});
    const double earliest = now() + needed;
    if (earliest > slurm_end_at_) return packed({StopReason::Kind::slurm_end, rank_, 0});
    if (earliest > time_limit_at_) return packed({StopReason::Kind::time_limit, rank_, 0});
    return 0;
}

void Stop::begin(double needed) { ballot_.begin(wish(needed)); }

void Stop::end() {
    if (const std::int64_t largest = ballot_.end(); largest != 0) reason_ = unpacked(largest);
}

}  // namespace quadrille
