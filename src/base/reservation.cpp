#include "base/reservation.hpp"

#include "base/error.hpp"
#include "base/proc.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

namespace quadrille {
namespace {

constexpr std::int64_t huge_page = std::int64_t{2} << 20;

// Writes one byte of every page of an equal part of the memory on each thread.
void touch(std::byte* data, std::int64_t size, int threads) {
    const std::int64_t page = sysconf(_SC_PAGESIZE), pages = (size + huge_page - 1) / huge_page;
    const auto work = [=](std::int64_t first, std::int64_t last) {
        for (std::int64_t at = first * huge_page; at < std::min(size, last * huge_page); at += page)
            *static_cast<volatile std::byte*>(data + at) = std::byte{0};
    };
    std::vector<std::jthread> team;  // one that cannot be started throws, and the others are waited for
    const std::int64_t n = std::clamp<std::int64_t>(threads, 1, std::max<std::int64_t>(pages, 1));
    for (std::int64_t i = 1; i < n; ++i) team.emplace_back(work, pages * i / n, pages * (i + 1) / n);
    work(0, pages / n);
}

// Bytes of the process's memory that are in huge pages; none where the system does not tell.
std::optional<std::int64_t> in_huge_pages() {
    const auto kib = number_after("/proc/self/smaps_rollup", "AnonHugePages:");
    return kib ? std::optional(*kib * 1024) : std::nullopt;
}

}  // namespace

Reservation::Reservation(std::int64_t bytes, const std::string& what, int threads) {
    if (bytes == 0) return;
    const auto before = in_huge_pages();
    const std::int64_t mapped = bytes + huge_page;
    void* const at = mmap(nullptr, static_cast<std::size_t>(mapped), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw Error(Exit::no_memory, fmt::format("{} cannot be had: {}", what, std::strerror(errno)));
    const auto address = reinterpret_cast<std::uintptr_t>(at);
    const std::uintptr_t aligned = (address + huge_page - 1) / huge_page * huge_page;
    mapping_ = at, mapped_ = mapped, data_ = reinterpret_cast<std::byte*>(aligned), size_ = bytes;
    madvise(data_, static_cast<std::size_t>(size_), MADV_HUGEPAGE);  // advice: no failure matters
    try {
        touch(data_, size_, threads);
    } catch (...) {
        release();
        throw;
    }
    const auto after = in_huge_pages();
    huge_pages_ = before && after ? std::optional(std::clamp<std::int64_t>(*after - *before, 0, size_)) : std::nullopt;
}

void Reservation::swap(Reservation& other) noexcept {
    std::swap(mapping_, other.mapping_);
    std::swap(mapped_, other.mapped_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(huge_pages_, other.huge_pages_);
}

void Reservation::release() {
    if (mapping_) munmap(mapping_, static_cast<std::size_t>(mapped_));
    mapping_ = nullptr;
}

}  // namespace quadrille
