#include "data/page_guard.hpp"

#include <csignal>
#include <cstdint>
#include <sys/mman.h>
#include <unistd.h>

namespace quadrille {
namespace {

constinit thread_local const PageGuard* innermost = nullptr;

// What a signal is answered with is the process's alone to have, and a handler is given nothing else to find it by.
struct sigaction answer_before;
std::uintptr_t page_bytes;

// What is no guard's goes to whoever answered before, for good: that ends the process.
void answer(int signal, siginfo_t* info, void*) {
    if (innermost != nullptr && info->si_code > 0 && innermost->replace(info->si_addr)) return;  // and the access is tried again
    sigaction(signal, &answer_before, nullptr);
    if (info->si_code <= 0) raise(signal);  // sent by a process: nothing will be tried again
}

bool answer_sigbus() {
    page_bytes = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    struct sigaction ours = {};
    ours.sa_sigaction = answer;
    ours.sa_flags = SA_SIGINFO | SA_RESTART;
    return sigaction(SIGBUS, &ours, &answer_before) == 0;
}

}  // namespace

PageGuard::PageGuard(std::span<const std::byte> bytes, std::atomic<bool>& lost) : bytes_(bytes), lost_(lost), outer_(innermost) {
    static_assert(std::atomic<bool>::is_always_lock_free, "a signal's answer may not wait for a lock");
    [[maybe_unused]] static const bool answered = answer_sigbus();
    innermost = this;
    std::atomic_signal_fence(std::memory_order_seq_cst);  // before any of the reads that it is for, and below after them
}

PageGuard::~PageGuard() {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    innermost = outer_;
}

bool PageGuard::replace(void* address) const {
    const auto at = reinterpret_cast<std::uintptr_t>(address), page = at / page_bytes * page_bytes;
    const auto begin = reinterpret_cast<std::uintptr_t>(bytes_.data());
    if (at < begin || at - begin >= bytes_.size()) return outer_ != nullptr && outer_->replace(address);
    lost_.store(true);
    return mmap(reinterpret_cast<void*>(page), page_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

}  // namespace quadrille
