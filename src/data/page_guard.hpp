// Reading of mapped pages that may go away: cut off by another process, or on a disk that fails. The system answers with SIGBUS, which ends a
// process without a word; here such pages read as zeroes, and the reader is told. Owns the process's answer to SIGBUS, from the first guard on; a
// SIGBUS that no guard is for is left to whoever answered before.
#pragma once
#include <atomic>
#include <cstddef>
#include <span>

namespace quadrille {

// While it lives, its thread reads zeroes where a page of `bytes` cannot be read, and `lost` is true from then on. Guards of one thread nest.
class PageGuard {
  public:
    PageGuard(std::span<const std::byte> bytes, std::atomic<bool>& lost);
    ~PageGuard();
    PageGuard(const PageGuard&) = delete;
    PageGuard& operator=(const PageGuard&) = delete;

    // For the answer to the signal. Whether the page at this address is this guard's, or one around it, and now reads as zeroes.
    bool replace(void* address) const;

  private:
    std::span<const std::byte> bytes_;
    std::atomic<bool>& lost_;
    const PageGuard* outer_;
};

}  // namespace quadrille
